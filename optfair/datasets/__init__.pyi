from optfair.datasets.catalogue import load as load
from optfair.datasets.catalogue import names as names
from optfair.datasets.dataset import Dataset as Dataset
