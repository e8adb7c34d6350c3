package admission

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/netdisk"
)

// checkNetworkDisks judges what the schema cannot see: it looks at one volume at a time.
func checkNetworkDisks(spec *kubevirt.VirtualMachineInstanceSpec, in *field.Path, c *causes) {
	first := ""
	for _, v := range spec.AllVolumes() {
		name := netdisk.Certificates(v.NetworkSource)
		if name == "" {
			continue
		}
		if first != "" && name != first {
			at := in.Child("volumes").Key(v.Name)
			c.invalid(at, "volume %s has its certificates in Secret %s and another volume in %s: the NBD disks of a machine have one Secret for TLS",
				v.Name, name, first)
		}
		first = name
	}
}

// checkCopies judges the sizes of copies.
func checkCopies(spec *kubevirt.VirtualMachineInstanceSpec, in *field.Path, c *causes) {
	for _, v := range spec.AllVolumes() {
		if v.Copy == nil {
			continue
		}
		at := in.Child("volumes").Key(v.Name).Child("copy")
		for name, q := range map[string]*kubevirt.Quantity{"capacity": v.Copy.Capacity, "size": v.Copy.Size} {
			if q != nil && q.Sign() <= 0 {
				c.invalid(at.Child(name), "volume %s: copy.%s must be more than 0; it is %s", v.Name, name, q)
			}
		}
	}
}
