package main

import (
	"github.com/spf13/cobra"

	"github.com/berth-vm/berth/internal/virtctl/createclone"
	"github.com/berth-vm/berth/internal/virtctl/createvm"
)

func (a *app) createClone() *cobra.Command {
	var o createclone.Options
	cmd := &cobra.Command{
		Use: "clone --source-name NAME [--target-name NAME]", Short: "Write the manifest of a VirtualMachineClone",
		Long: "Write the manifest of a VirtualMachineClone, to be applied with kubectl: a machine that is made from another one, or from a snapshot of one, with\n" +
			"disks of its own. A filter is a regular expression for keys; * is every key, and a key that a filter with a ! before it matches is left out.",
		Example: a.examples(`
  # A clone of machine web, called web-copy
  virtctl create clone --source-name=web --target-name=web-copy | kubectl create -f -

  # ... of a snapshot, without the labels of team, and with an address of its own
  virtctl create clone --source-name=web-monday --source-type=vmsnapshot --label-filter='*' --label-filter='!team/' --new-mac-address=default:02:00:00:00:00:01`),
		Args: named,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if flag := cmd.Flag("namespace"); flag != nil && flag.Changed {
				o.Namespace = flag.Value.String()
			}
			manifest, err := o.Manifest()
			if err != nil {
				return err
			}
			return createvm.Write(a.out, manifest)
		},
	}
	s := cmd.Flags()
	s.StringVar(&o.Name, "name", "", "name of the clone; generated if it is empty")
	s.StringVar(&o.SourceName, "source-name", "", "name of the machine or of the snapshot")
	s.StringVar(&o.SourceType, "source-type", "vm", "what the source is: vm or vmsnapshot")
	s.StringVar(&o.TargetName, "target-name", "", "name of the machine to make; generated if it is empty")
	s.StringVar(&o.TargetType, "target-type", "vm", "what the target is: vm")
	s.StringArrayVar(&o.LabelFilters, "label-filter", nil, "labels of the machine to keep; may be repeated")
	s.StringArrayVar(&o.AnnotationFilters, "annotation-filter", nil, "annotations of the machine to keep; may be repeated")
	s.StringArrayVar(&o.TemplateLabels, "template-label-filter", nil, "labels of its template to keep; may be repeated")
	s.StringArrayVar(&o.TemplateAnnotations, "template-annotation-filter", nil, "annotations of its template to keep; may be repeated")
	s.StringArrayVar(&o.MACs, "new-mac-address", nil, "address of an interface, INTERFACE:ADDRESS; may be repeated")
	s.StringVar(&o.Serial, "new-smbios-serial", "", "serial number of the machine")
	_ = cmd.MarkFlagRequired("source-name") // it is defined above
	return cmd
}
