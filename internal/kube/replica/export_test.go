package replica

var (
	PackSidecars   = packSidecars
	UnpackSidecars = unpackSidecars
)
