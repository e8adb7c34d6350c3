package images

// CDI are the programs of CDI that the tests beside it run, each with an image. They are built out of hack/peers and are no part of the product.
var CDI = []string{"cdi-operator", "cdi-controller", "cdi-apiserver", "cdi-uploadproxy", "cdi-uploadserver", "cdi-importer", "cdi-cloner"}

// CDIImage is the name under which the image of one of them is loaded into a cluster.
func CDIImage(program string) string { return "berth.dev/peers/" + program + ":dev" }

// CDIArchive is the file name of the image of one of them as an OCI archive.
func CDIArchive(program string) string { return program + ".tar" }
