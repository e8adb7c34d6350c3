package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-vm/berth/internal/virtctl/createpvc"
	"github.com/berth-vm/berth/internal/virtctl/createvm"
	"github.com/berth-vm/berth/internal/virtctl/kube"
	"github.com/berth-vm/berth/pkg/claim"
)

type claimFlags struct {
	createpvc.Options
	dryRun, output string
	wait           bool
	waitSecs       uint
}

func (a *app) createPVC() *cobra.Command {
	var f claimFlags
	cmd := &cobra.Command{
		Use:   "create-pvc (--name NAME | --generate-name PREFIX) [--size SIZE]",
		Short: "Create a PersistentVolumeClaim that suits virtual machines",
		Long: `Create a PersistentVolumeClaim that suits virtual machines. Whatever is not given is filled in: the class with the default
for virtual machines, the modes with the best that the class offers, the size of a clone with that of its source.

Given size, access mode and volume mode, and no source or one of another populator, nothing but Kubernetes is needed.`,
		Example: a.examples(`
  # An empty claim of 1Gi, with a generated name, on the default class
  virtctl create-pvc --generate-name=my-pvc- --size=1Gi

  # A claim filled from VolumeImportSource my-import-source
  virtctl create-pvc --name=my-pvc --data-source-ref-kind=VolumeImportSource --data-source-ref-name=my-import-source --size=1Gi --storage-class=rook-ceph-block

  # A clone of the golden image that DataSource fedora stands for: its size comes from there
  virtctl create-pvc --name=my-pvc --data-source-ref-kind=DataSource --data-source-ref-name=fedora

  # A clone of VolumeCloneSource fedora
  virtctl create-pvc --name=my-pvc --data-source-ref-kind=VolumeCloneSource --data-source-ref-name=fedora

  # What would be made
  virtctl create-pvc --name=my-pvc --size=1Gi --dry-run -o yaml`),
		Args: named,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return err
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			return f.run(cmd.Context(), c, a.streams)
		},
	}
	f.define(cmd.Flags())
	return cmd
}

// named refuses a name without its flag.
func named(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%q is not expected: give the name with --name=%s", args[0], args[0])
	}
	return nil
}

func (f *claimFlags) define(s *pflag.FlagSet) {
	s.StringVar(&f.Name, "name", "", "name of the claim")
	s.StringVar(&f.GenerateName, "generate-name", "", "prefix of a name that is generated")
	s.StringVar(&f.Size, "size", "", "size of the claim, like 10Gi; a clone's comes from its source")
	s.StringVar(&f.Class, "storage-class", "", "storage class")
	s.StringSliceVar(&f.AccessModes, "access-mode", nil, "access modes, like ReadWriteOnce")
	s.StringVar(&f.VolumeMode, "volume-mode", "", "Filesystem or Block")
	s.StringVar(&f.Source.Kind, "data-source-ref-kind", "", "kind of what fills the claim, like VolumeImportSource")
	s.StringVar(&f.Source.Name, "data-source-ref-name", "", "name of what fills the claim")
	s.StringVar(&f.Source.Group, "data-source-ref-api-group", "", "API group of what fills the claim, if its kind is no well-known one")
	s.StringVar(&f.Source.Namespace, "data-source-ref-namespace", "", "namespace of what fills the claim, if a ReferenceGrant there allows it")
	s.StringVar(&f.dryRun, "dry-run", "none", "none, client (only print) or server (have it checked and make nothing)")
	s.Lookup("dry-run").NoOptDefVal = "client"
	s.StringVarP(&f.output, "output", "o", "", "print the claim as yaml, json or name")
	s.BoolVar(&f.wait, "wait", false, "wait until the claim is bound and filled")
	s.UintVar(&f.waitSecs, "wait-secs", 3600, "how many seconds to wait")
}

func (f *claimFlags) check() error {
	switch f.dryRun {
	case "none", "client", "server":
	default:
		return fmt.Errorf("--dry-run %q is none of none, client, server", f.dryRun)
	}
	switch f.output {
	case "", "yaml", "json", "name":
	default:
		return fmt.Errorf("--output %q is none of yaml, json, name", f.output)
	}
	if f.wait && f.dryRun != "none" {
		return errors.New("--wait and --dry-run exclude each other: nothing is made")
	}
	if err := f.Check(); err != nil || f.Size == "" {
		return err
	}
	return createvm.Plausible(resource.MustParse(f.Size)) // checked
}

func (f *claimFlags) run(ctx context.Context, c *kube.Client, s streams) error {
	pvc, filled, err := createpvc.Complete(ctx, c, f.Options)
	if err != nil {
		return err
	}
	if strings.HasSuffix(f.Name, "-") {
		_, _ = fmt.Fprintf(s.err, "A name cannot end with a dash: the claim is called %s\n", pvc.Name)
	}
	if f.dryRun != "client" {
		if err := createpvc.KeepsSource(ctx, c, pvc); err != nil {
			return err
		}
		options := metav1.CreateOptions{}
		if f.dryRun == "server" {
			options.DryRun = []string{metav1.DryRunAll}
		}
		made, err := c.Core.CoreV1().PersistentVolumeClaims(c.Namespace).Create(ctx, pvc, options)
		if err != nil {
			return fmt.Errorf("create PersistentVolumeClaim: %w", err)
		}
		made.TypeMeta = pvc.TypeMeta
		made.ManagedFields = nil
		pvc = made
	}
	if err := f.print(s.out, pvc, filled); err != nil {
		return err
	}
	if missing := createpvc.Missing(ctx, c, f.Source); missing != "" {
		_, _ = fmt.Fprintln(s.err, missing)
	}
	if f.wait {
		return createpvc.Wait(ctx, c, pvc.Name, time.Duration(f.waitSecs)*time.Second, s.out)
	}
	return nil
}

func (f *claimFlags) print(out io.Writer, pvc *corev1.PersistentVolumeClaim, filled []claim.Filled) error {
	switch f.output {
	case "yaml":
		return createvm.Write(out, pvc)
	case "json":
		text, err := json.MarshalIndent(pvc, "", "  ")
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(out, "%s\n", text)
		return err
	case "name":
		_, err := fmt.Fprintf(out, "persistentvolumeclaim/%s\n", pvc.Name)
		return err
	}
	suffix := map[string]string{"client": " (dry run)", "server": " (server dry run)"}[f.dryRun]
	name := pvc.Name
	if name == "" {
		name = pvc.GenerateName
	}
	lines := []string{fmt.Sprintf("PersistentVolumeClaim %s/%s created%s", pvc.Namespace, name, suffix)}
	for _, why := range filled {
		lines = append(lines, "  "+why.String())
	}
	_, err := fmt.Fprintln(out, strings.Join(lines, "\n"))
	return err
}
