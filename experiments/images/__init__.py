"""Bags of Pascal VOC images, and the network that says whether one of them holds a cat."""
