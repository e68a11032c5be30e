from optfair.methods.sparse_counterfactuals.action_plan import ActionPlan as ActionPlan
from optfair.methods.sparse_counterfactuals.action_plan import MinimumEdits as MinimumEdits
from optfair.methods.sparse_counterfactuals.choice_problem import edited_together as edited_together
from optfair.methods.sparse_counterfactuals.choice_problem import implies as implies
from optfair.methods.sparse_counterfactuals.choice_problem import row_budget as row_budget
from optfair.methods.sparse_counterfactuals.couplings import aligned_coupling as aligned_coupling
from optfair.methods.sparse_counterfactuals.couplings import nearest_coupling as nearest_coupling
from optfair.methods.sparse_counterfactuals.couplings import (
    optimal_transport_coupling as optimal_transport_coupling,
)
from optfair.methods.sparse_counterfactuals.couplings import random_coupling as random_coupling
from optfair.methods.sparse_counterfactuals.couplings import uniform_coupling as uniform_coupling
from optfair.methods.sparse_counterfactuals.generators import Counterfactuals as Counterfactuals
from optfair.methods.sparse_counterfactuals.generators import (
    dice_counterfactuals as dice_counterfactuals,
)
from optfair.methods.sparse_counterfactuals.generators import (
    given_counterfactuals as given_counterfactuals,
)
from optfair.methods.sparse_counterfactuals.generators import (
    mapped_counterfactuals as mapped_counterfactuals,
)
from optfair.methods.sparse_counterfactuals.generators import (
    nearest_unlike_neighbours as nearest_unlike_neighbours,
)
from optfair.methods.sparse_counterfactuals.generators import (
    projected_counterfactuals as projected_counterfactuals,
)
from optfair.methods.sparse_counterfactuals.refinement import Refinement as Refinement
from optfair.methods.sparse_counterfactuals.shapley import Attribution as Attribution
from optfair.methods.sparse_counterfactuals.shapley import p_shap as p_shap
from optfair.methods.sparse_counterfactuals.sparse_counterfactuals import (
    SparseCounterfactuals as SparseCounterfactuals,
)
