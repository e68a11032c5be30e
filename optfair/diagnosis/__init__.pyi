from optfair.diagnosis.report import Diagnosis as Diagnosis
