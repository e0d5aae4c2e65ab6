"""The equation of Poisson on a square, solved by conjugate gradients."""

from petsc4py import PETSc

N = 200
grid = PETSc.DMDA().create([N, N], stencil_width=1)
matrix = grid.createMatrix()
(x0, x1), (y0, y1) = grid.getRanges()
row, column = PETSc.Mat.Stencil(), PETSc.Mat.Stencil()
for y in range(y0, y1):
    for x in range(x0, x1):
        row.index = (x, y)
        for value, (i, j) in ((4.0, (x, y)), (-1.0, (x - 1, y)), (-1.0, (x + 1, y)), (-1.0, (x, y - 1)), (-1.0, (x, y + 1))):
            if 0 <= i < N and 0 <= j < N:
                column.index = (i, j)
                matrix.setValueStencil(row, column, value)
matrix.assemble()
right, solution = grid.createGlobalVec(), grid.createGlobalVec()
right.set(1.0)
solver = PETSc.KSP().create()
solver.setOperators(matrix)
solver.setType("cg")
solver.setTolerances(rtol=1e-8)
solver.solve(right, solution)
if PETSc.COMM_WORLD.rank == 0:
    print(f"steps {solver.getIterationNumber()}")
norm = solution.norm()
if PETSc.COMM_WORLD.rank == 0:
    print(f"norm {norm:.6f}, {PETSc.COMM_WORLD.size} ranks")
