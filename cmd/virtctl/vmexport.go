package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	export "github.com/berth-vm/berth/api/export/v1beta1"
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	snapshot "github.com/berth-vm/berth/api/snapshot/v1beta1"
	"github.com/berth-vm/berth/internal/virtctl/imageupload"
	"github.com/berth-vm/berth/internal/virtctl/kube"
	"github.com/berth-vm/berth/internal/virtctl/vmexport"
)

// exportFlags are flags that need conversion before they become options.
type exportFlags struct {
	vmexport.Options
	vm, snapshot, pvc string
	ttl, wait         string
	format            string
	forward           bool
	manifest          bool
	secret            bool
	manifestFormat    string

	to, toContext, toNamespace string
	upload                     imageupload.Options
}

func (a *app) vmExport() *cobra.Command {
	return group(&cobra.Command{
		Use: "vmexport", Short: "Export a VM volume.",
		Long: "Take the disks of a machine, of a snapshot of one, or of a claim out of the cluster. An export is an object of the cluster with a\n" +
			"server of its own, which is there until it is deleted or its time is over.",
	}, a.exportCreate(), a.exportDownload(), a.exportDelete())
}

// sources are the flags that say what is exported.
func (f *exportFlags) sources(cmd *cobra.Command, a *app) {
	s := cmd.Flags()
	s.StringVar(&f.vm, "vm", "", "machine to export, which must not run")
	s.StringVar(&f.snapshot, "snapshot", "", "snapshot of a machine to export")
	s.StringVar(&f.pvc, "pvc", "", "claim to export, which nobody must use")
	s.StringVar(&f.ttl, "ttl", "", "how long after its creation the export is deleted, like 1h; two hours if it is empty")
	s.StringToStringVar(&f.Labels, "labels", nil, "labels of the export and its server, like a=b,c=d")
	s.StringToStringVar(&f.Annotations, "annotations", nil, "annotations of the export and its server, like a=b,c=d")
	cmd.MarkFlagsMutuallyExclusive("vm", "snapshot", "pvc")
	_ = cmd.RegisterFlagCompletionFunc("vm", a.names(machines)) // the flags exist
	_ = cmd.RegisterFlagCompletionFunc("pvc", a.names(volumeNames))
}

func (f *exportFlags) options(name string) (vmexport.Options, error) {
	o := f.Options
	o.Name = name
	group := func(g string) *string { return &g }
	switch {
	case f.vm != "":
		o.Source = &corev1.TypedLocalObjectReference{APIGroup: group(kubevirt.GroupVersion.Group), Kind: export.Machine, Name: f.vm}
	case f.snapshot != "":
		o.Source = &corev1.TypedLocalObjectReference{APIGroup: group(snapshot.GroupVersion.Group), Kind: export.Snapshot, Name: f.snapshot}
	case f.pvc != "":
		o.Source = &corev1.TypedLocalObjectReference{APIGroup: group(""), Kind: export.Claim, Name: f.pvc}
	}
	for _, d := range []struct {
		text string
		into *time.Duration
		flag string
	}{{f.ttl, &o.TTL, "ttl"}, {f.wait, &o.Wait, "readiness-timeout"}} {
		if d.text == "" {
			continue
		}
		var err error
		if *d.into, err = time.ParseDuration(d.text); err != nil || *d.into <= 0 {
			return o, fmt.Errorf("--%s: %q is no time like 1h30m", d.flag, d.text)
		}
	}
	return o, nil
}

func (a *app) exportCreate() *cobra.Command {
	var f exportFlags
	cmd := &cobra.Command{
		Use: "create NAME (--vm VM | --snapshot SNAPSHOT | --pvc CLAIM)", Short: "Make an export",
		Long: "Make an export, and the Secret with its token. Its disks can be downloaded as soon as it is Ready.",
		Example: a.examples(`
  # Export the volumes of machine web, which is stopped
  virtctl vmexport create web-export --vm=web

  # Export those of a snapshot, or a claim, for ten minutes
  virtctl vmexport create web-export --snapshot=before
  virtctl vmexport create data-export --pvc=data --ttl=10m`),
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := f.options(args[0])
			if err == nil && o.Source == nil {
				err = errors.New("need to specify export kind when attempting to create a VirtualMachineExport [--pvc|--vm|--snapshot]")
			}
			if err != nil {
				return misused(cmd, err)
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			return vmexport.Create(cmd.Context(), c, o, a.out)
		},
	}
	f.sources(cmd, a)
	return cmd
}

func (a *app) exportDelete() *cobra.Command {
	return &cobra.Command{
		Use: "delete NAME", Short: "Delete an export",
		Long:    "Delete an export, its server and its token.",
		Example: a.examples("  # Delete export web-export\n  virtctl vmexport delete web-export"),
		Args:    cobra.ExactArgs(1), ValidArgsFunction: a.names(exports),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			return vmexport.Delete(cmd.Context(), c, args[0], a.out)
		},
	}
}

func (f *exportFlags) define(s *pflag.FlagSet) {
	s.StringVar(&f.Output, "output", "", "file for the volume; - for standard output")
	s.StringVar(&f.Volume, "volume", "", "volume to download, if the export has several")
	s.StringVar(&f.format, "format", "", "format to download: gzip, raw or qcow2; gzip if it is empty")
	s.BoolVar(&f.Insecure, "insecure", false, "do not verify the server's certificate")
	s.BoolVar(&f.Keep, "keep-vme", false, "keep the export after the download")
	s.BoolVar(&f.Delete, "delete-vme", false, "delete the export after the download, even if it was there before")
	s.StringVar(&f.ServiceURL, "service-url", "", "address at which the server is reached, like host:port, if not through the API server")
	s.BoolVar(&f.forward, "port-forward", true, "reach the server through the API server, which is how it is reached without --service-url")
	s.IntVar(&f.LocalPort, "local-port", 0, "local port that is forwarded; one is chosen if it is 0")
	s.IntVar(&f.Retries, "retry", 5, "how many tries in a row may bring nothing")
	s.BoolVar(&f.manifest, "manifest", false, "write the objects by which machine and volumes are made again elsewhere, instead of a volume; the export stays")
	s.BoolVar(&f.secret, "include-secret", false, "with --manifest: also the Secret with the token, which the objects name")
	s.StringVar(&f.manifestFormat, "manifest-output-format", "", "with --manifest: json or yaml; yaml if it is empty")
	s.StringVar(&f.to, "to-kubeconfig", "", "kubeconfig of a cluster to send the volume to, instead of a file")
	s.StringVar(&f.toContext, "to-context", "", "context in that kubeconfig; its own choice if it is empty")
	s.StringVar(&f.toNamespace, "to-namespace", "", "namespace there; the context's if it is empty")
	s.StringVar(&f.upload.Name, "to-name", "", "DataVolume to make there; the volume's name, or the export's, if it is empty")
	s.StringVar(&f.upload.Class, "to-storage-class", "", "storage class there")
	s.BoolVar(&f.upload.ForceBind, "to-force-bind", false, "bind the DataVolume anywhere if its class waits for a first consumer")
	s.StringVar(&f.upload.ProxyURL, "to-uploadproxy-url", "", "address of the upload proxy there")
	s.StringVar(&f.wait, "readiness-timeout", "2m", "how long to wait for the export to be ready")
}

func (a *app) exportDownload() *cobra.Command {
	var f exportFlags
	cmd := &cobra.Command{
		Use: "download NAME (--output FILE | --to-kubeconfig FILE | --manifest) [--vm VM | --snapshot SNAPSHOT | --pvc CLAIM]", Short: "Download a volume of an export",
		Long: "Download a volume of an export, which is made and deleted again if a source is given. Formats raw and qcow2 go on where they were\n" +
			"if the connection breaks, or if the command is repeated after it was ended: until it is whole, the file is FILE.part. In raw files and\n" +
			"qcow2 images there is no room taken for what the disk has nothing in.",
		Example: a.examples(`
  # Download the only volume of export web-export
  virtctl vmexport download web-export --output=disk.img.gz

  # Export volume root of machine web, and download it as a qcow2 image
  virtctl vmexport download web-export --vm=web --volume=root --format=qcow2 --output=root.qcow2

  # Send it to another cluster, where it becomes DataVolume root
  virtctl vmexport download web-export --vm=web --volume=root --to-kubeconfig=there.yaml

  # Make machine web again in another namespace, while export web-export lasts
  virtctl vmexport download web-export --vm=web --manifest --include-secret | kubectl apply -n other -f -

  # Download it into another program
  virtctl vmexport download web-export --vm=web --volume=root --format=raw --output=- | sha256sum`),
		Args: cobra.ExactArgs(1), ValidArgsFunction: a.names(exports),
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := f.download(args[0])
			if err != nil {
				return misused(cmd, err)
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			if f.manifest {
				return vmexport.Manifests(cmd.Context(), c, o, vmexport.Manifest{Secret: f.secret, JSON: f.manifestFormat == "json"}, a.out, a.err)
			}
			if f.to != "" {
				return f.send(cmd.Context(), c, o, a.out)
			}
			said := a.out
			if o.Output == "-" {
				said = a.err
			}
			return vmexport.Download(cmd.Context(), c, o, a.out, said)
		},
	}
	f.sources(cmd, a)
	f.define(cmd.Flags())
	cmd.MarkFlagsMutuallyExclusive("keep-vme", "delete-vme")
	return cmd
}

// download returns the options of a download, if they make sense.
func (f *exportFlags) download(name string) (vmexport.Options, error) {
	o, err := f.options(name)
	o.Format = export.Format(f.format)
	switch {
	case err != nil:
		return o, err
	case f.format != "" && f.format != "gzip" && f.format != "raw" && f.format != "qcow2":
		return o, errors.New("--format is not a valid value, acceptable values are gzip/raw/qcow2")
	case o.Retries < 0:
		return o, errors.New("--retry is not a valid value, acceptable values are positive integers")
	case o.LocalPort < 0 || o.LocalPort > 65535:
		return o, errors.New("--local-port is not a valid value, acceptable values are valid port numbers")
	case f.to != "" && (o.Output != "" || f.format != ""):
		return o, errors.New("--to-kubeconfig excludes --output and --format: the volume becomes a DataVolume of that cluster")
	case f.manifest && (f.to != "" || f.format != "" || o.Volume != ""):
		return o, errors.New("--manifest is of all volumes: it excludes --volume, --format and --to-kubeconfig")
	case f.manifest && (o.Delete || o.Keep):
		return o, errors.New("--manifest excludes --keep-vme and --delete-vme: what it writes names the server of the export, which stays")
	case !f.manifest && (f.secret || f.manifestFormat != ""):
		return o, errors.New("--include-secret and --manifest-output-format are for --manifest")
	case f.manifestFormat != "" && f.manifestFormat != "json" && f.manifestFormat != "yaml":
		return o, errors.New("--manifest-output-format is not a valid value, acceptable values are json/yaml")
	case f.to == "" && o.Output == "" && !f.manifest:
		return o, errors.New("warning: Binary output can mess up your terminal. Use '--output -' to output into stdout anyway or consider '--output <FILE>' to save to a file")
	}
	return o, nil
}

// send sends the volume to another cluster.
func (f *exportFlags) send(ctx context.Context, c *kube.Client, o vmexport.Options, out io.Writer) error {
	there := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(&clientcmd.ClientConfigLoadingRules{ExplicitPath: f.to},
		&clientcmd.ConfigOverrides{CurrentContext: f.toContext, Context: api.Context{Namespace: f.toNamespace}})
	config, err := there.ClientConfig()
	if err != nil {
		return fmt.Errorf("find the cluster to send to: %w", err)
	}
	namespace, _, err := there.Namespace()
	if err != nil {
		return fmt.Errorf("find the cluster to send to: %w", err)
	}
	to, err := kube.New(config, namespace)
	if err != nil {
		return err
	}
	if f.upload.Name == "" {
		f.upload.Name = cmp.Or(o.Volume, o.Name)
	}
	return vmexport.Import(ctx, c, to, o, f.upload, out)
}

func exports(ctx context.Context, c *kube.Client) ([]string, error) {
	all, err := kube.Exports.List(ctx, c)
	names := make([]string, len(all))
	for i := range all {
		names[i] = all[i].Name
	}
	return names, err
}
