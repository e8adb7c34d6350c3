package claim

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

// Traits are the properties of a storage class that follow from its provisioner and parameters.
type Traits struct {
	// Sets are the ways it provides volumes, best first for a machine's disk: Block before Filesystem (fewer layers
	// under the guest), ReadWriteMany before ReadWriteOnce (a machine can move). Empty for static local volumes, whose
	// PersistentVolumes say what they are.
	Sets []cdiv1.ClaimPropertySet
	// Clone is the strategy to prefer; empty means a snapshot if the class has snapshots, else a copy.
	Clone cdiv1.CDICloneStrategy
	// Least is the smallest volume it makes, as a quantity; empty means that any size will do.
	Least string
	// Cron is the form golden images are best kept in; empty means a claim.
	Cron cdiv1.DataImportCronSourceFormat
}

// Waits reports whether claims of the class are bound when a pod needs them, on that pod's node. A class that does not exist does not wait.
func Waits(class *storagev1.StorageClass) bool {
	return class != nil && class.VolumeBindingMode != nil && *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
}

// NoProvisioner marks a class of volumes that an administrator creates manually.
const NoProvisioner = "kubernetes.io/no-provisioner"

// Static reports whether the volumes of the class are created manually, and bound to matching claims.
func Static(class *storagev1.StorageClass) bool {
	return class != nil && class.Provisioner == NoProvisioner
}

// Recognize looks a class up in the table of provisioners. It returns false if the provisioner is unknown.
func Recognize(class *storagev1.StorageClass) (Traits, bool) {
	i := slices.IndexFunc(table, func(r row) bool { return r.matches(class) })
	if i < 0 {
		return Traits{}, false
	}
	return table[i].traits(), true
}

// row is one line of the table. A provisioner may have several, told apart by a parameter; the first that matches wins.
type row struct {
	provisioner string // "*.suffix" for drivers that are installed under a prefix of the cluster's choice
	parameter   string // "" or "name=value"; a value that ends in * is a prefix
	modes       modes
	clone       cdiv1.CDICloneStrategy
	cron        cdiv1.DataImportCronSourceFormat
	least       string
}

// modes is a compact spelling of property sets: "rwx-block rwo-block rwo-file".
type modes string

// The shapes that storage comes in.
const (
	none         modes = ""
	localFile    modes = "rwo-file"
	sharedFile   modes = "rwx-file rwo-file"
	blockOrFile  modes = "rwo-block rwo-file"
	sharedBlock  modes = "rwx-block rwo-block rwo-file" // several nodes may write the device, one mounts a filesystem
	blockAndNFS  modes = "rwo-block rwx-file rwo-file"  // a device of one node, or a share in front of it
	sharedEither modes = "rwx-block rwo-block rwx-file rwo-file"
)

const (
	clones    = cdiv1.CloneStrategyCsiClone
	snapshots = cdiv1.CloneStrategySnapshot
	copies    = cdiv1.CloneStrategyHostAssisted

	asSnapshot = cdiv1.DataImportCronSourceFormatSnapshot
)

func (r row) matches(class *storagev1.StorageClass) bool {
	suffix, anyPrefix := strings.CutPrefix(r.provisioner, "*")
	if anyPrefix && !strings.HasSuffix(class.Provisioner, suffix) || !anyPrefix && class.Provisioner != r.provisioner {
		return false
	}
	if r.parameter == "" {
		return true
	}
	name, want, _ := strings.Cut(r.parameter, "=")
	value, set := class.Parameters[name]
	if prefix, open := strings.CutSuffix(want, "*"); open {
		return set && strings.HasPrefix(strings.ToLower(value), prefix)
	}
	return set && strings.EqualFold(value, want)
}

func (r row) traits() Traits {
	t := Traits{Clone: r.clone, Cron: r.cron, Least: r.least}
	for word := range strings.FieldsSeq(string(r.modes)) {
		set := cdiv1.ClaimPropertySet{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}}
		if strings.HasPrefix(word, "rwx-") {
			set.AccessModes[0] = corev1.ReadWriteMany
		}
		mode := corev1.PersistentVolumeFilesystem
		if strings.HasSuffix(word, "-block") {
			mode = corev1.PersistentVolumeBlock
		}
		set.VolumeMode = &mode
		t.Sets = append(t.Sets, set)
	}
	return t
}
