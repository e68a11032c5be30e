"""
Few edits for a loan officer
============================

A trained model refuses an applicant. A nearest accepted applicant shows that another answer
exists, but differs in nearly everything. Which of these differences are needed?
"""

# %%
# A model
# -------
# German Credit with its codes in words, eight features, a random forest in a pipeline that takes
# raw categories. Half of the rows train it.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import optfair as of
from optfair.plots import edit_table, plot_edits, plot_effect, plot_row_edits

credit = of.datasets.load("german_credit")
codes = (
    "A11 overdrawn; A12 below 200; A13 above 200; A14 no account; A61 below 100; A62 below 500;"
    "A63 below 1000; A64 above 1000; A65 unknown; A71 none; A72 below 1 year; A73 1 to 4 years;"
    "A74 4 to 7 years; A75 over 7 years; A151 rent; A152 own; A153 free; A40 new car;"
    "A41 used car; A42 furniture; A43 radio, TV; A44 appliances; A45 repairs; A46 education;"
    "A48 retraining; A49 business; A410 other"
)
words = dict(entry.strip().split(" ", 1) for entry in codes.split(";"))
columns = {
    "checking": "status_of_existing_checking_account",
    "savings": "savings_account/bonds",
    "months": "duration_in_month",
    "amount": "credit_amount",
    "purpose": "purpose",
    "employed": "present_employment_since",
    "housing": "housing",
    "age": "age_in_years",
}
X = pd.DataFrame({short: credit[name] for short, name in columns.items()})
categories = [c for c in X if X[c].dtype.kind not in "if"]
X[categories] = X[categories].replace(words)
answer = np.where(credit["credit_risk"] == 1, "yes", "no")

order = np.random.default_rng(0).permutation(len(X))
seen, new = order[:500], order[500:]
encoder = ColumnTransformer(
    [("words", OneHotEncoder(handle_unknown="ignore"), categories)], remainder="passthrough"
)
model = make_pipeline(encoder, RandomForestClassifier(random_state=0))
model.fit(X.iloc[seen], answer[seen])
print(f"right for {model.score(X.iloc[new], answer[new]):.0%} of the rows it has not seen")

# %%
# Refused applicants, and accepted ones like them
# -----------------------------------------------
# Each refused applicant gets the nearest row of the training set that the model accepts, with
# the same purpose. Age cannot be changed by anybody: the counterfactual takes the applicant's own.

rows = X.iloc[new]
refused = rows[model.predict(rows) == "no"].reset_index(drop=True)
found = of.sparse_counterfactuals.nearest_unlike_neighbours(
    model, refused, X.iloc[seen], target_class="yes", immutable=["purpose"]
)
accepted = found.rows.assign(age=refused["age"])
still = model.predict(accepted) == "yes"
refused, accepted = (t[still].iloc[:24].reset_index(drop=True) for t in (refused, accepted))
print(f"{still.sum()} of {len(still)} are accepted with their own age; the first 24 are shown")

# %%
# Refine
# ------
# Optimal transport couples the two tables, Shapley values against the coupled row say what each
# cell contributes, and the cells are edited in that order until all decisions are turned.

cola = of.SparseCounterfactuals(model, outcome="label", target_class="yes", immutable=["age"])
cola.fit(refused, accepted, alignment=range(len(refused)))
refined = cola.minimum_actions(effect=1.0)
print(refined)

plot_edits(
    refused,
    {"nearest accepted applicants": accepted, "needed": refined.rows},
    rows=range(1, 25),
    title="What has to change for a yes",
)
plt.show()

# %%
plot_row_edits(
    refused,
    accepted,
    refined.rows,
    rows=range(1, 25),
    title="Edits that are needed, by applicant",
)
plt.show()

# %%
# How good is that?
# -----------------
# The order of edits is a heuristic. The fewest edits for the same values are a declared problem,
# a mixed-integer program, which a dynamic program solves with a proof.

fewest = cola.fewest(effect=1.0)
best = fewest.solve()
print(fewest.problem_class, best.solver, best.is_optimal(1e-9))
print(f"{refined.n_edits} edits, the optimum is {fewest.cost(best):.0f}")

# %%
# The same along the budget, for the mean of the scores: the least distance to the target that so
# many edits can reach is the black line.

scores = {
    "p-SHAP, optimal transport": of.SparseCounterfactuals(model, target_class="yes"),
    "p-SHAP, random coupling": of.SparseCounterfactuals(
        model, target_class="yes", coupling="random", random_state=0
    ),
    "RB-SHAP, optimal transport": of.SparseCounterfactuals(
        model, target_class="yes", attribution="rb-shap", background=X.iloc[seen[:50]]
    ),
}
for estimator in scores.values():
    estimator.fit(refused, accepted)
plan = scores["p-SHAP, optimal transport"].plan(budget=0)
budgets = range(81)
least = [max(plan.with_budget(C).solve().bound, 0.0) / len(refused) for C in budgets]
plot_effect(scores, optimum=(budgets, least), most_edits=80)
plt.show()

# %%
# The table
# ---------
# What the officer gets: the applicant as he or she is, the cells that matter, and the model's
# chance of a yes before and after.

yes = list(model.classes_).index("yes")
shown = np.arange(10)
table = edit_table(
    refused.iloc[shown],
    refined.rows.iloc[shown],
    outputs=tuple(model.predict_proba(t.iloc[shown])[:, yes] for t in (refused, refined.rows)),
    output_name="chance of a yes",
    rows=[f"applicant {i + 1}" for i in shown],
    names={"amount": "amount (DM)", "checking": "checking (DM)", "savings": "savings (DM)"},
    formats={"amount": ",.0f", "chance of a yes": ".0%"},
    caption="What would have turned the decision",
)
table

# %%
# The same in words. These are differences that turn the model's decision, not advice: nothing
# here says that an applicant who changes them becomes a better debtor.

print(table)
