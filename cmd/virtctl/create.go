package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/berth-vm/berth/internal/virtctl/createvm"
)

func (a *app) create() *cobra.Command {
	return group(&cobra.Command{Use: "create", Short: "Write the manifest of a machine, a clone, an instance type, a preference or a stream"}, a.createVM(), a.createStream(),
		a.createClone(), a.createInstancetype(), a.createPreference())
}

const createVMHelp = `Write the manifest of a VirtualMachine, to be applied with kubectl. A volume that is imported becomes one of the machine's
volumeClaimTemplates: a claim that is made with the machine, called <machine>-<volume>, and what it is filled from is written
before the machine.

Volumes are written as key:value,key:value. Every volume takes name and bootorder; without a boot order, machines boot from
container disks before claims before imported volumes.

  --volume-containerdisk  src
  --volume-pvc            src
  --volume-import         type:http|s3|gcs|registry  url, size, secretref, certconfigmap, pullmethod (registry)
                          type:pvc|snapshot|ds       src (NAME or NAMESPACE/NAME), size
                          type:blank                 size
                          and for each               storageclass

With copy:cow (copy-on-write), copy:cor (copy-on-read) or copy:clone the guest has a disk of its own that begins as the volume and
is gone when the machine stops; usage-type is the medium it is kept on, copy-capacity how much the guest may write, copy-size a
larger disk.

--from-image makes a machine of an ordinary container image: it runs the image's program, and ends when that does.`

func (a *app) createVM() *cobra.Command {
	var o createvm.Options
	var passwordFile string
	cmd := &cobra.Command{
		Use:   "vm [--name NAME] (--image IMAGE | --volume-import ... | --volume-pvc ... | --volume-containerdisk ... | --from-image IMAGE)",
		Short: "Write the manifest of a VirtualMachine",
		Long:  createVMHelp,
		Example: a.examples(`
  # A machine with a disk of golden image debian of the library, and the instance type and preference that suit it
  virtctl create vm --name=web --image=debian | kubectl apply -f -

  # A machine with a disk imported over HTTP, applied at once
  virtctl create vm --name=web --volume-import=type:http,url:https://example.org/fedora.qcow2,size:10Gi | kubectl apply -f -

  # A machine with a clone of golden image fedora and an empty disk, sized by an instance type
  virtctl create vm --name=web --instancetype=u1.small --volume-import=type:ds,src:golden/fedora --volume-import=type:blank,size:20Gi,name:data

  # A machine with a disk of its own over golden claim fedora, kept on fast storage while it runs
  virtctl create vm --name=web --volume-pvc=src:fedora,copy:cow,usage-type:fast | kubectl apply -f -

  # A machine that runs the program of a container image
  virtctl create vm --name=web --from-image=docker.io/library/nginx:1 | kubectl apply -f -

  # A machine that boots from a container disk and lets a user in
  virtctl create vm --name=web --volume-containerdisk=src:quay.io/containerdisks/fedora:latest --user=fedora --ssh-key="$(cat ~/.ssh/id_ed25519.pub)"`),
		Args: named,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Name == "" {
				o.Name = "vm-" + rand.String(5)
			}
			if flag := cmd.Flag("namespace"); flag != nil && flag.Changed {
				o.Namespace = flag.Value.String()
			}
			if passwordFile != "" {
				text, err := os.ReadFile(passwordFile)
				if err != nil {
					return fmt.Errorf("read the password: %w", err)
				}
				o.CloudInit.Password = strings.TrimSpace(string(text))
			}
			o.MemorySaid = cmd.Flags().Changed("memory")
			objects, err := createvm.Objects(o)
			if err != nil {
				return err
			}
			return createvm.Write(a.out, objects...)
		},
	}
	defineMachine(cmd.Flags(), &o)
	cmd.Flags().StringVar(&passwordFile, "password-file", "", "file with the password of the user")
	return cmd
}

func defineMachine(s *pflag.FlagSet, o *createvm.Options) {
	s.StringVar(&o.Name, "name", "", "name of the machine; generated if it is empty")
	s.StringVar(&o.RunStrategy, "run-strategy", "Always", "when it is to run: Always, Halted, Manual, RerunOnFailure or Once")
	s.Int64Var(&o.GracePeriod, "termination-grace-period", 180, "how many seconds the guest may take to shut down")
	s.StringVar(&o.Memory, "memory", "512Mi", "memory of the guest, unless an instance type says it")
	s.StringVar(&o.Instancetype, "instancetype", "", "instance type: NAME, or virtualmachineinstancetype/NAME for one of the namespace")
	s.StringVar(&o.Preference, "preference", "", "preference: NAME, or virtualmachinepreference/NAME for one of the namespace")
	s.BoolVar(&o.InferInstancetype, "infer-instancetype", false, "take the instance type from the labels of the first volume to boot from")
	s.BoolVar(&o.InferPreference, "infer-preference", false, "take the preference from the labels of the first volume to boot from")
	s.StringVar(&o.Image, "image", "", "a golden image to have a disk of: NAME of the library's, or NAMESPACE/NAME; its labels say which instance type and preference suit it")
	s.StringArrayVar(&o.Containerdisks, "volume-containerdisk", nil, "a disk in a container image; may be repeated")
	s.StringVar(&o.FromImage, "from-image", "", "an ordinary container image, whose program the machine runs")
	s.StringArrayVar(&o.Claims, "volume-pvc", nil, "a claim that exists; may be repeated")
	s.StringArrayVar(&o.Imports, "volume-import", nil, "a claim to be made and filled; may be repeated")
	s.StringVar(&o.CloudInit.Kind, "cloud-init", "nocloud", "what cloud-init finds: nocloud, configdrive or none")
	s.StringVar(&o.CloudInit.User, "user", "", "user that cloud-init makes")
	s.StringArrayVar(&o.CloudInit.SSHKeys, "ssh-key", nil, "public key that lets the user in; may be repeated")
	s.StringVar(&o.CloudInit.UserData, "cloud-init-user-data", "", "cloud-init's user data in base64")
	s.StringVar(&o.CloudInit.NetworkData, "cloud-init-network-data", "", "cloud-init's network data in base64")
}
