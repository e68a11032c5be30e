from optfair.methods.cluster_counterfactuals.adapters import best_known as best_known
from optfair.methods.cluster_counterfactuals.cluster_counterfactual import (
    ClusterCounterfactual as ClusterCounterfactual,
)
from optfair.methods.cluster_counterfactuals.explainer import ClusterExplainer as ClusterExplainer
from optfair.methods.cluster_counterfactuals.rules import at_most_changes as at_most_changes
from optfair.methods.cluster_counterfactuals.rules import least_density as least_density
from optfair.methods.cluster_counterfactuals.rules import one_hot as one_hot
from optfair.methods.cluster_counterfactuals.rules import whole_numbers as whole_numbers
