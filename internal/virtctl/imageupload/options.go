// Package imageupload fills a volume from a file on the user's machine: it makes the DataVolume or claim if there is
// none, waits until the cluster is ready to take the bytes, has them sent, and waits until they have become a disk.
//
// It does not know how bytes are sent (internal/upload/client) nor what a volume's phases mean beyond the few at which a person
// has to be told something. It prints the same lines as KubeVirt's virtctl.
package imageupload

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/berth-vm/berth/internal/upload/client"
)

// Options are the flags and arguments of the command.
type Options struct {
	Name  string
	Claim bool // fill a bare claim, not a DataVolume

	Image   string // the file; of Image and Archive one is set
	Archive string

	// From is the origin of the data if it is not a file; its size must be set then.
	From *client.Origin

	Size       string
	Class      string
	AccessMode string
	VolumeMode string
	NoCreate   bool
	Labels     map[string]string // of what is made

	ProxyURL string
	Insecure bool
	Retries  int
	Wait     time.Duration

	DataSource bool // make a DataSource of the same name, too

	ForceBind bool // bind a held claim: anywhere,
	Node      string
	LikeVM    string
}

// Check returns the errors in the options that can be found without a cluster.
func (o *Options) Check() error {
	switch {
	case o.Image == "" && o.Archive == "":
		return errors.New("either image-path or archive-path must be provided")
	case o.Image != "" && o.Archive != "":
		return errors.New("image-path and archive-path cannot be used together")
	case o.Archive != "" && o.VolumeMode == "block":
		return errors.New("In archive upload the volume mode should always be filesystem") //nolint:staticcheck // the text clients know
	case o.AccessMode == string(corev1.ReadOnlyMany):
		return errors.New("cannot upload to a readonly volume, use either ReadWriteOnce or ReadWriteMany if supported")
	case o.NoCreate && o.Size != "":
		return errors.New("size cannot be used with no-create: the volume exists and has its size")
	}
	if _, err := accessModes(o.AccessMode); err != nil {
		return err
	}
	if _, err := volumeMode(o.VolumeMode); err != nil {
		return err
	}
	if o.Size != "" {
		if size, err := resource.ParseQuantity(o.Size); err != nil || size.Sign() <= 0 {
			return fmt.Errorf("size %q is not a size like 10Gi", o.Size)
		}
	}
	if err := o.checkOnePlace(); err != nil {
		return err
	}
	return o.checkFile()
}

// checkFile returns the errors of the file before any object is created for it.
func (o *Options) checkFile() error {
	path := o.path()
	if strings.HasPrefix(path, "http://") || strings.HasPrefix(path, "https://") {
		return advise(fmt.Errorf("%s is an address, and a file on this machine is wanted", path),
			"The cluster itself can fetch it: make a DataVolume with source http (kubectl explain datavolume.spec.source).")
	}
	f, err := os.Open(path)
	if err != nil {
		return err // it names the file and what was attempted
	}
	defer f.Close() // opened for reading
	info, err := f.Stat()
	switch {
	case err != nil:
		return err
	case info.IsDir():
		return fmt.Errorf("%s is a directory: image-path wants the file of a disk image, archive-path that of a tar archive", path)
	case info.Mode().IsRegular() && info.Size() == 0:
		return fmt.Errorf("%s is empty", path)
	case !info.Mode().IsRegular() && info.Mode()&os.ModeType != os.ModeDevice:
		return fmt.Errorf("%s cannot be uploaded: it is neither a file nor a block device", path)
	}
	return o.checkRoom()
}

// checkRoom refuses a size that the image says it does not fit.
func (o *Options) checkRoom() error {
	if o.Size == "" || o.Archive != "" {
		return nil
	}
	asked, err := resource.ParseQuantity(o.Size)
	if err != nil {
		return err
	}
	needed, err := virtualSize(o.Image)
	if err != nil || needed <= asked.Value() { // what cannot be read here the worker may still say more about
		return nil //nolint:nilerr // see above
	}
	enough := RoundUp(needed)
	return advise(fmt.Errorf("size %s is too small: the disk in %s has %d bytes", o.Size, o.Image, needed),
		"Leave --size out to have a disk just as large, or ask for %s or more.", enough.String())
}

func (o *Options) checkOnePlace() error {
	asked := 0
	for _, yes := range []bool{o.ForceBind, o.Node != "", o.LikeVM != ""} {
		if yes {
			asked++
		}
	}
	if asked > 1 {
		return errors.New("force-bind, node and like-vm exclude each other: each says where the volume is bound")
	}
	return nil
}

// path returns the file that is uploaded.
func (o *Options) path() string {
	switch {
	case o.From != nil:
		return o.From.Name
	case o.Archive != "":
		return o.Archive
	}
	return o.Image
}

func accessModes(name string) ([]corev1.PersistentVolumeAccessMode, error) {
	mode := corev1.PersistentVolumeAccessMode(name)
	known := []corev1.PersistentVolumeAccessMode{
		corev1.ReadWriteOnce, corev1.ReadOnlyMany, corev1.ReadWriteMany, corev1.ReadWriteOncePod,
	}
	switch {
	case name == "":
		return nil, nil
	case slices.Contains(known, mode):
		return []corev1.PersistentVolumeAccessMode{mode}, nil
	}
	return nil, fmt.Errorf("access mode %q is none of %v", name, known)
}

func volumeMode(name string) (*corev1.PersistentVolumeMode, error) {
	switch name {
	case "":
		return nil, nil
	case "filesystem":
		return new(corev1.PersistentVolumeFilesystem), nil
	case "block":
		return new(corev1.PersistentVolumeBlock), nil
	}
	return nil, fmt.Errorf("invalid volume mode %q, supported values: filesystem, block", name)
}
