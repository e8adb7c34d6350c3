// Package usagetype is the contract of the local disk driver and the machine controller about usage types: how a driver's pod
// names them, how a node shows them, and how a class asks for one. It knows neither CSI nor clients, so that both sides can hold
// it.
package usagetype

// Driver is the name of the local disk driver, as storage classes give it.
const Driver = "localdisk.berth.dev"

// Annotation and the name of a usage type are an annotation of the driver's pod. Its value is the directory of the pool.
const Annotation = "kubevirt.io/storage.usage-type."

// Topology and the name of a usage type are a label of the nodes that offer it.
const Topology = Driver + "/usage-type."

// App is the name of the driver in the label app.kubernetes.io/name of its pods.
const App = "localdisk"

// MetricsPort is where the driver's pods show how full their pools are.
const MetricsPort = 8080

// Parameter of a class whose volumes are in the pool of a usage type.
const Parameter = "usageType"
