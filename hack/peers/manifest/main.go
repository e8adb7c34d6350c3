// Command manifest prints the objects that CDI's operator is installed with, as CDI's own generator makes them, with the images of this
// checkout. The operator makes the rest. For tests beside CDI.
package main

import (
	"fmt"
	"os"

	"kubevirt.io/containerized-data-importer/pkg/operator/resources/namespaced"
	"kubevirt.io/containerized-data-importer/pkg/operator/resources/operator"
	"sigs.k8s.io/yaml"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "manifest: say the namespace, and the images' name with %s for the program")
		os.Exit(2)
	}
	if err := write(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "manifest:", err)
		os.Exit(1)
	}
}

func write(namespace, image string) error {
	of := func(program string) string { return fmt.Sprintf(image, program) }
	objects, err := operator.CreateOperatorResourceGroup("everything", &operator.FactoryArgs{
		Image: of("cdi-operator"),
		NamespacedArgs: namespaced.FactoryArgs{
			OperatorVersion: "v1.65.0", DeployClusterResources: "true", Namespace: namespace, Verbosity: "1", PullPolicy: "IfNotPresent",
			ControllerImage: of("cdi-controller"), ImporterImage: of("cdi-importer"), ClonerImage: of("cdi-cloner"), OvirtPopulatorImage: of("cdi-importer"),
			APIServerImage: of("cdi-apiserver"), UploadProxyImage: of("cdi-uploadproxy"), UploadServerImage: of("cdi-uploadserver"),
		},
	})
	if err != nil {
		return err
	}
	for _, o := range objects {
		text, err := yaml.Marshal(o)
		if err != nil {
			return fmt.Errorf("write %s: %w", o.GetName(), err)
		}
		fmt.Printf("---\n%s", text)
	}
	return nil
}
