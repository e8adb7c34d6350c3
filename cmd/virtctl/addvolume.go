package main

import (
	"fmt"

	"github.com/spf13/cobra"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/virtctl/machine"
)

type volumeFlags struct {
	volume, disk, serial, cache, kind, bus string
	persist, dryRun                        bool
}

func (a *app) addVolume() *cobra.Command {
	var f volumeFlags
	cmd := &cobra.Command{
		Use: "addvolume VM --volume-name NAME", Short: "Add a volume to a running virtual machine",
		Long: "Add a DataVolume or PersistentVolumeClaim to a running virtual machine. A volume that waits for its first consumer is\n" +
			"bound on the node of the machine.",
		Example: a.examples(`
  # Add the volume data to machine web, until it stops
  virtctl addvolume web --volume-name=data

  # ... and to every run of it from now on, with a serial number by which the guest finds it
  virtctl addvolume web --volume-name=data --persist --serial=DATA`),
		Args: cobra.ExactArgs(1), ValidArgsFunction: a.names(machines),
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := f.options()
			if err != nil {
				return err
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			if o.VolumeSource, err = machine.Source(cmd.Context(), c, f.volume); err != nil {
				return err
			}
			if err := machine.AddVolume(cmd.Context(), c, args[0], o, f.persist); err != nil {
				return err
			}
			_, err = fmt.Fprintf(a.out, "Successfully submitted add volume request to VM %s for volume %s\n", args[0], f.volume)
			return err
		},
	}
	s := cmd.Flags()
	s.StringVar(&f.volume, "volume-name", "", "name of the DataVolume or PersistentVolumeClaim")
	s.StringVar(&f.disk, "disk-name", "", "name of the disk in the machine; the volume's if it is empty")
	s.StringVar(&f.serial, "serial", "", "serial number of the disk; the volume's name if it is empty")
	s.StringVar(&f.cache, "cache", "", "how the disk is cached: none, writethrough or writeback")
	s.StringVar(&f.kind, "disk-type", "disk", "disk or lun")
	s.StringVar(&f.bus, "bus", "scsi", "bus of the disk: scsi, virtio or sata")
	s.BoolVar(&f.persist, "persist", false, "add it to the machine itself, not only to its present run")
	s.BoolVar(&f.dryRun, "dry-run", false, "have the request checked and change nothing")
	_ = cmd.MarkFlagRequired("volume-name") // the flag exists
	choices(cmd, "bus", "scsi", "virtio", "sata")
	choices(cmd, "cache", "none", "writethrough", "writeback")
	choices(cmd, "disk-type", "disk", "lun")
	_ = cmd.RegisterFlagCompletionFunc("volume-name", func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return a.found(cmd.Context(), volumeNames), noFiles
	})
	return cmd
}

func (f *volumeFlags) options() (kubevirt.AddVolumeOptions, error) {
	name := f.disk
	if name == "" {
		name = f.volume
	}
	o := kubevirt.AddVolumeOptions{Name: name, Disk: &kubevirt.Disk{
		Name: name, Serial: f.serial, Cache: kubevirt.DriverCache(f.cache),
	}}
	if f.serial == "" {
		o.Disk.Serial = f.volume
	}
	switch f.cache {
	case "", "none", "writethrough", "writeback":
	default:
		return o, fmt.Errorf("cache %q is none of none, writethrough, writeback", f.cache)
	}
	switch f.kind {
	case "disk":
		o.Disk.Disk = &kubevirt.DiskTarget{Bus: kubevirt.DiskBus(f.bus)}
	case "lun":
		o.Disk.LUN = &kubevirt.LunTarget{Bus: kubevirt.DiskBus(f.bus)}
	default:
		return o, fmt.Errorf("Invalid disk type '%s'. Only LUN and Disk are supported.", f.kind) //nolint:revive,staticcheck // the text clients know
	}
	if f.dryRun {
		o.DryRun = []string{"All"}
	}
	return o, nil
}
