package main

import (
	"github.com/spf13/cobra"

	"github.com/berth-vm/berth/internal/virtctl/createkind"
	"github.com/berth-vm/berth/internal/virtctl/createvm"
)

// asked reads the namespace of the command line: one means an object of that namespace.
func asked(cmd *cobra.Command, o *createkind.Object) {
	if flag := cmd.Flag("namespace"); flag != nil && flag.Changed {
		o.Namespace = flag.Value.String()
	}
}

func (a *app) createInstancetype() *cobra.Command {
	var o createkind.Instancetype
	cmd := &cobra.Command{
		Use: "instancetype --cpu COUNT --memory SIZE", Short: "Write the manifest of an instance type",
		Long: "Write the manifest of a VirtualMachineClusterInstancetype, or of a VirtualMachineInstancetype, to be applied with kubectl.",
		Example: a.examples(`
  # An instance type for every namespace, applied at once
  virtctl create instancetype --name=u1.small --cpu=2 --memory=2Gi | kubectl apply -f -

  # ... for the namespace of its machines only
  virtctl create instancetype --namespaced --name=small --cpu=1 --memory=512Mi`),
		Args: named,
		RunE: func(cmd *cobra.Command, _ []string) error {
			asked(cmd, &o.Object)
			manifest, err := o.Manifest()
			if err != nil {
				return err
			}
			return createvm.Write(a.out, manifest)
		},
	}
	s := cmd.Flags()
	s.StringVar(&o.Name, "name", "", "name of the instance type; generated if it is empty")
	s.Uint32Var(&o.CPU, "cpu", 0, "how many processors the guest has")
	s.StringVar(&o.Memory, "memory", "", "memory of the guest")
	s.StringVar(&o.IOThreadsPolicy, "iothreadspolicy", "", "policy of I/O threads: auto or shared; machines here refuse an instance type that asks for it")
	s.BoolVar(&o.Namespaced, "namespaced", false, "an instance type of a namespace, and not of the cluster")
	s.StringArrayVar(&o.GPUs, "gpu", nil, "a GPU of the node, name:NAME,devicename:NAME; may be repeated; machines here refuse it")
	s.StringArrayVar(&o.HostDevices, "hostdevice", nil, "a device of the node, name:NAME,devicename:NAME; may be repeated; machines here refuse it")
	for _, flag := range []string{"cpu", "memory"} {
		_ = cmd.MarkFlagRequired(flag) // it is defined above
	}
	return cmd
}

func (a *app) createPreference() *cobra.Command {
	var o createkind.Preference
	cmd := &cobra.Command{
		Use: "preference", Short: "Write the manifest of a preference",
		Long: "Write the manifest of a VirtualMachineClusterPreference, or of a VirtualMachinePreference, to be applied with kubectl.",
		Example: a.examples(`
  # A preference for every namespace, with the class that machines' volumes get
  virtctl create preference --name=fedora --volume-storage-class=fast | kubectl apply -f -

  # ... for the namespace of its machines only
  virtctl create preference --namespaced --cpu-topology=cores`),
		Args: named,
		RunE: func(cmd *cobra.Command, _ []string) error {
			asked(cmd, &o.Object)
			manifest, err := o.Manifest()
			if err != nil {
				return err
			}
			return createvm.Write(a.out, manifest)
		},
	}
	s := cmd.Flags()
	s.StringVar(&o.Name, "name", "", "name of the preference; generated if it is empty")
	s.BoolVar(&o.Namespaced, "namespaced", false, "a preference of a namespace, and not of the cluster")
	s.StringVar(&o.StorageClass, "volume-storage-class", "", "StorageClass of volumes that name none")
	s.StringVar(&o.MachineType, "machine-type", "", "machine type of machines that name none")
	s.StringVar(&o.CPUTopology, "cpu-topology", "", "how the guest sees its processors: sockets, cores, threads or spread")
	return cmd
}
