from optfair.methods.fair_clustering.alternation import Alternation as Alternation
from optfair.methods.fair_clustering.alternation import alternate as alternate
from optfair.methods.fair_clustering.approximations import FairletClustering as FairletClustering
from optfair.methods.fair_clustering.approximations import fairlet_clustering as fairlet_clustering
from optfair.methods.fair_clustering.approximations import greedy_capture as greedy_capture
from optfair.methods.fair_clustering.assignment import FairAssignment as FairAssignment
from optfair.methods.fair_clustering.bound import FairKMeansBound as FairKMeansBound
from optfair.methods.fair_clustering.bound import optimality_gap as optimality_gap
from optfair.methods.fair_clustering.bounded_cost import BalanceUnderBudget as BalanceUnderBudget
from optfair.methods.fair_clustering.bounded_cost import bounded_cost_kmeans as bounded_cost_kmeans
from optfair.methods.fair_clustering.bounded_cost import largest_balance as largest_balance
from optfair.methods.fair_clustering.certified_labels import CertifiedLabels as CertifiedLabels
from optfair.methods.fair_clustering.certified_labels import certified_kmeans as certified_kmeans
from optfair.methods.fair_clustering.cost_rules import forbidden_arcs as forbidden_arcs
from optfair.methods.fair_clustering.cost_rules import group_cost as group_cost
from optfair.methods.fair_clustering.cost_rules import radius as radius
from optfair.methods.fair_clustering.coupling import KantorovichCoupling as KantorovichCoupling
from optfair.methods.fair_clustering.coupling import factor_coupling as factor_coupling
from optfair.methods.fair_clustering.facility_location import (
    FairFacilityLocation as FairFacilityLocation,
)
from optfair.methods.fair_clustering.fair_kmeans import FairKMeans as FairKMeans
from optfair.methods.fair_clustering.front import Front as Front
from optfair.methods.fair_clustering.front import fairness_front as fairness_front
from optfair.methods.fair_clustering.labels import HardLabels as HardLabels
from optfair.methods.fair_clustering.labels import hard_labels as hard_labels
from optfair.methods.fair_clustering.links import cannot_link as cannot_link
from optfair.methods.fair_clustering.links import must_link as must_link
from optfair.methods.fair_clustering.margins import intersection as intersection
from optfair.methods.fair_clustering.margins import margin as margin
from optfair.methods.fair_clustering.rules import additive_gap as additive_gap
from optfair.methods.fair_clustering.rules import balance as balance
from optfair.methods.fair_clustering.rules import cluster_share as cluster_share
from optfair.methods.fair_clustering.rules import max_gap as max_gap
from optfair.methods.fair_clustering.rules import perfect_fairness as perfect_fairness
from optfair.methods.fair_clustering.rules import proportion as proportion
from optfair.methods.fair_clustering.site_prices import LocatedSites as LocatedSites
from optfair.methods.fair_clustering.site_prices import located_sites as located_sites
