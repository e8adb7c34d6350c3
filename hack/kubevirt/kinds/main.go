// Command kinds prints the definitions of KubeVirt's kinds, as its operator makes them.
package main

import (
	"fmt"
	"log"
	"os"

	"kubevirt.io/kubevirt/pkg/virt-operator/resource/generate/components"
	"sigs.k8s.io/yaml"

	extv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

func main() {
	for _, make := range []func() (*extv1.CustomResourceDefinition, error){
		components.NewVirtualMachineInstanceCrd, components.NewVirtualMachineCrd, components.NewReplicaSetCrd,
		components.NewVirtualMachineInstanceMigrationCrd, components.NewKubeVirtCrd, components.NewVirtualMachinePoolCrd,
		components.NewVirtualMachineSnapshotCrd, components.NewVirtualMachineSnapshotContentCrd, components.NewVirtualMachineRestoreCrd,
		components.NewVirtualMachineExportCrd, components.NewVirtualMachineInstancetypeCrd, components.NewVirtualMachineClusterInstancetypeCrd,
		components.NewVirtualMachinePreferenceCrd, components.NewVirtualMachineClusterPreferenceCrd, components.NewMigrationPolicyCrd,
		components.NewVirtualMachineCloneCrd,
	} {
		kind, err := make()
		if err != nil {
			log.Fatalf("kinds: %v", err)
		}
		text, err := yaml.Marshal(kind)
		if err != nil {
			log.Fatalf("kinds: %v", err)
		}
		if _, err := fmt.Fprintf(os.Stdout, "---\n%s", text); err != nil {
			log.Fatalf("kinds: %v", err)
		}
	}
}
