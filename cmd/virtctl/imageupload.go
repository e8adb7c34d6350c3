package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/berth-vm/berth/internal/virtctl/imageupload"
)

// uploadFlags are flags that need conversion before they become options.
type uploadFlags struct {
	imageupload.Options
	waitSecs     uint
	retries      uint
	instancetype [2]string // name, kind
	preference   [2]string

	oldName, oldSize string
	oldBlock         bool
}

func (a *app) imageUpload() *cobra.Command {
	var f uploadFlags
	cmd := &cobra.Command{
		Use:   "image-upload dv|pvc NAME (--image-path FILE | --archive-path FILE)",
		Short: "Upload a disk image or an archive into a DataVolume or PersistentVolumeClaim",
		Long: `Upload a disk image or an archive into a DataVolume or PersistentVolumeClaim, which is made if it does not exist.

The size is that of the disk in the image unless --size says otherwise; a compressed image does not say its size.
An upload that is interrupted goes on where it was when the command is repeated.

Where the storage class waits for a volume's first consumer, the volume has no place until some pod uses it. The command
ends at once then, unless --force-bind, --node or --like-vm says where the volume is to be: a consumer pod is made
there, and removed as soon as the claim is bound.`,
		Example: a.examples(`
  # Upload an image into a new DataVolume
  virtctl image-upload dv fedora-dv --image-path=/images/fedora30.qcow2

  # ... on the node that is to run the machine, or on one that can run machine web
  virtctl image-upload dv fedora-dv --image-path=/images/fedora30.qcow2 --node=node1
  virtctl image-upload dv fedora-dv --image-path=/images/fedora30.qcow2 --like-vm=web

  # Upload through a proxy at another address than the cluster says, with a larger disk
  virtctl image-upload dv fedora-dv --size=10Gi --uploadproxy-url=https://cdi-uploadproxy.mycluster.com --image-path=/images/fedora30.qcow2

  # Upload into a claim that exists
  virtctl image-upload pvc my-pvc --no-create --image-path=/images/fedora30.qcow2

  # Unpack an archive into a new volume
  virtctl image-upload dv files --size=1Gi --archive-path=/images/files.tar`),
		Args: cobra.MaximumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := f.options(args)
			if err != nil {
				return misused(cmd, err)
			}
			if err := o.Check(); err != nil {
				return err
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			return imageupload.Run(cmd.Context(), c, o, a.out)
		},
		ValidArgs: []cobra.Completion{"dv", "pvc"},
	}
	f.define(cmd.Flags())
	_ = cmd.RegisterFlagCompletionFunc("like-vm", a.names(machines)) // the flag exists
	return cmd
}

func (f *uploadFlags) define(s *pflag.FlagSet) {
	s.StringVar(&f.Image, "image-path", "", "path of the image to upload")
	s.StringVar(&f.Archive, "archive-path", "", "path of the archive to upload")
	s.StringVar(&f.Size, "size", "", "size of the disk to make, like 10Gi")
	s.StringVar(&f.Class, "storage-class", "", "storage class of what is made")
	s.StringVar(&f.AccessMode, "access-mode", "", "access mode of what is made")
	s.StringVar(&f.VolumeMode, "volume-mode", "", "volume mode of what is made: filesystem or block")
	s.BoolVar(&f.NoCreate, "no-create", false, "use a volume that exists and make none")
	s.StringVar(&f.ProxyURL, "uploadproxy-url", "", "address of the upload proxy")
	s.BoolVar(&f.Insecure, "insecure", false, "do not verify the upload proxy's certificate")
	s.UintVar(&f.retries, "retry", 5, "how many tries in a row may fail")
	s.UintVar(&f.waitSecs, "wait-secs", 300, "how many seconds to wait for the upload pod")
	s.BoolVar(&f.DataSource, "datasource", false, "make a DataSource of the same name, or point it to the volume")
	s.BoolVar(&f.ForceBind, "force-bind", false, "bind the volume anywhere if it waits for its first consumer")
	s.StringVar(&f.Node, "node", "", "bind the volume on this node if it waits for its first consumer")
	s.StringVar(&f.LikeVM, "like-vm", "", "bind the volume where this VM runs or can run if it waits for its first consumer")
	s.StringVar(&f.instancetype[0], "default-instancetype", "", "default instance type of machines with this volume")
	s.StringVar(&f.instancetype[1], "default-instancetype-kind", "", "kind of the default instance type")
	s.StringVar(&f.preference[0], "default-preference", "", "default preference of machines with this volume")
	s.StringVar(&f.preference[1], "default-preference-kind", "", "kind of the default preference")

	s.StringVar(&f.oldName, "pvc-name", "", "name of the claim")
	s.StringVar(&f.oldSize, "pvc-size", "", "size of the claim")
	s.BoolVar(&f.oldBlock, "block-volume", false, "make a block volume")
	_ = s.MarkDeprecated("pvc-name", "specify the name as the second argument instead.") // the flags exist
	_ = s.MarkDeprecated("pvc-size", "use --size instead.")
	_ = s.MarkDeprecated("block-volume", "specify volume mode (filesystem/block) with --volume-mode instead.")
}

func (f *uploadFlags) options(args []string) (imageupload.Options, error) {
	o := f.Options
	o.Retries, o.Wait = int(f.retries), time.Duration(f.waitSecs)*time.Second
	if o.Size == "" {
		o.Size = f.oldSize
	}
	if f.oldBlock {
		o.VolumeMode = "block"
	}
	for _, l := range []struct{ key, value string }{
		{"default-instancetype", f.instancetype[0]}, {"default-instancetype-kind", f.instancetype[1]},
		{"default-preference", f.preference[0]}, {"default-preference-kind", f.preference[1]},
	} {
		if l.value != "" {
			if o.Labels == nil {
				o.Labels = map[string]string{}
			}
			o.Labels["instancetype.kubevirt.io/"+l.key] = l.value
		}
	}
	switch {
	case f.instancetype[0] == "" && f.instancetype[1] != "":
		return o, errors.New("--default-instancetype must be provided with --default-instancetype-kind")
	case f.preference[0] == "" && f.preference[1] != "":
		return o, errors.New("--default-preference must be provided with --default-preference-kind")
	case f.oldName != "" && len(args) == 0:
		o.Name, o.Claim = f.oldName, true
		return o, nil
	case f.oldName != "":
		return o, errors.New("cannot use --pvc-name and args")
	case len(args) != 2:
		return o, errors.New("expecting two args: dv or pvc, and a name")
	}
	o.Name = args[1]
	switch args[0] {
	case "dv":
	case "pvc":
		o.Claim = true
	default:
		return o, fmt.Errorf("invalid resource type %s, expecting dv or pvc", args[0])
	}
	return o, nil
}
