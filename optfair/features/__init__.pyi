from optfair.features.feature_problem import FeatureProblem as FeatureProblem
from optfair.features.feature_problem import box as box
from optfair.features.feature_problem import immutable as immutable
from optfair.features.feature_problem import monotone as monotone
from optfair.features.linear_score import LinearScore as LinearScore
