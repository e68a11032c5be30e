from optfair.formats.file_problem import FileProblem as FileProblem
