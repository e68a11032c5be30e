from optfair.methods.group_counterfactuals.affine_maps import AffineMap as AffineMap
from optfair.methods.group_counterfactuals.affine_maps import BiLipschitzMap as BiLipschitzMap
from optfair.methods.group_counterfactuals.affine_maps import PSDMap as PSDMap
from optfair.methods.group_counterfactuals.bi_lipschitz import (
    BiLipschitzCounterfactuals as BiLipschitzCounterfactuals,
)
from optfair.methods.group_counterfactuals.bi_lipschitz import BoundedValue as BoundedValue
from optfair.methods.group_counterfactuals.bi_lipschitz import GramBound as GramBound
from optfair.methods.group_counterfactuals.bi_lipschitz import (
    bi_lipschitz_baseline as bi_lipschitz_baseline,
)
from optfair.methods.group_counterfactuals.fixed_basis import (
    CommutativeGaussianMap as CommutativeGaussianMap,
)
from optfair.methods.group_counterfactuals.fixed_basis import DiagonalMap as DiagonalMap
from optfair.methods.group_counterfactuals.fixed_basis import ScaledMap as ScaledMap
from optfair.methods.group_counterfactuals.front import CounterfactualFront as CounterfactualFront
from optfair.methods.group_counterfactuals.front import counterfactual_front as counterfactual_front
from optfair.methods.group_counterfactuals.gaussian_maps import GaussianMap as GaussianMap
from optfair.methods.group_counterfactuals.gaussian_maps import MixtureMap as MixtureMap
from optfair.methods.group_counterfactuals.gaussian_maps import MixtureTransport as MixtureTransport
from optfair.methods.group_counterfactuals.group_problem import OutOfReach as OutOfReach
from optfair.methods.group_counterfactuals.members import (
    IndependentCounterfactuals as IndependentCounterfactuals,
)
from optfair.methods.group_counterfactuals.members import (
    LipschitzCounterfactuals as LipschitzCounterfactuals,
)
from optfair.methods.group_counterfactuals.members import MedoidGroup as MedoidGroup
from optfair.methods.group_counterfactuals.members import medoid_groups as medoid_groups
from optfair.methods.group_counterfactuals.metrics import MapValidation as MapValidation
from optfair.methods.group_counterfactuals.metrics import cross_validate_map as cross_validate_map
from optfair.methods.group_counterfactuals.rules import at_most as at_most
from optfair.methods.group_counterfactuals.rules import chance as chance
from optfair.methods.group_counterfactuals.rules import l1_sparsity as l1_sparsity
from optfair.methods.group_counterfactuals.rules import loewner as loewner
from optfair.methods.group_counterfactuals.rules import transport_budget as transport_budget
from optfair.methods.group_counterfactuals.transport_map import TransportMap as TransportMap
