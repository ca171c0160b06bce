"""How an explanation is shown and kept: numbers that add up as printed, texts, files, tables, shap's object."""
