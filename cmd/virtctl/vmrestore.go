package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"github.com/berth-vm/berth/internal/virtctl/restore"
)

const restoreHelp = "Make a virtual machine again as it was when it was backed up, under its name or another, in this namespace. Its disks are\n" +
	"DataVolumes that are filled with the backup. Nothing of the machine that was backed up is touched. What cannot work is\n" +
	"refused before anything is made: rights, names, storage classes and quotas are looked at first, and every backup has\n" +
	"to be the one that the next was made on. The machine is made with your rights, and does not run yet.\n\n" +
	"With --verify it is a drill: a copy under another name, without a network, is started while its disks are filled. When it\n" +
	"is up and its disks are full, or the deadline has passed, everything is removed and the command says what it found. It ends\n" +
	"with 0 if the copy came up. What a drill left that was killed is removed by the next one of the same machine."

func (a *app) vmRestore() *cobra.Command {
	o, d := restore.Options{}, drillFlags{}
	var list bool
	var output format
	cmd := &cobra.Command{
		Use: "restore VM --from CLAIM[/PATH]|URL [--at CHECKPOINT]", Short: "Make a virtual machine of a backup",
		Long: restoreHelp,
		Example: a.examples(`
  # Which backups are there?
  virtctl vm restore web --from backups/web --list

  # Make machine web of the newest, or of one of them under another name, with other hardware addresses
  virtctl vm restore web --from backups/web
  virtctl vm restore web --from backups/web --at b2 --as web-old --new-addresses

  # In another namespace than the claim's, starting while the disks are filled
  virtctl vm restore web --from backups/web --from-namespace prod -n test --early --start

  # Of a bucket; as manifests for Git
  virtctl vm restore web --from s3://backups/web --at b2 --secret login
  virtctl vm restore web --from https://store.example.com/backups/web --bucket s3 --at b2 --secret login
  virtctl vm restore web --from backups/web -o yaml

  # Does the newest backup start? For a program; by a line that the guest writes on its console
  virtctl vm restore web --from backups/web --verify -o json
  virtctl vm restore web --from backups/web --verify --console-line 'login: $' --deadline 5m`),
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Name = args[0]
			if !slices.Contains([]string{"", "s3", "gcs"}, o.Bucket) {
				return misused(cmd, fmt.Errorf("--bucket %q is neither s3 nor gcs", o.Bucket))
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			if list {
				return restore.List(cmd.Context(), c, o, a.out, a.err)
			}
			if d.verify {
				return a.verify(cmd, c, o, &d, output)
			}
			if output != "" && o.FromNamespace != "" && o.FromNamespace != c.Namespace {
				return misused(cmd, errors.New("--output cannot write how a set of another namespace is reached, which has a token: copy the set, or leave --output out"))
			}
			if output != "" {
				o.Print = func(objects []any) error { return output.stream(a.out, objects) }
			}
			return restore.Run(cmd.Context(), c, o, a.err)
		},
	}
	restoreFlags(cmd.Flags(), &o)
	choices(cmd, "bucket", "s3", "gcs")
	cmd.Flags().BoolVar(&list, "list", false, "list the backups of the set, the oldest first")
	d.bind(cmd)
	output.bind(cmd)
	_ = cmd.MarkFlagRequired("from") // the flag exists
	cmd.MarkFlagsMutuallyExclusive("list", "output", "dry-run")
	return cmd
}

// restoreFlags adds the flags that set options without conversion.
func restoreFlags(s *pflag.FlagSet, o *restore.Options) {
	s.StringVar(&o.From, "from", "", "claim with the set of backups and the path in it, or a URL of its directory (http, https, s3, gs)")
	s.StringVar(&o.FromNamespace, "from-namespace", "", "namespace of that claim; that of the machine if it is empty")
	s.StringVar(&o.At, "at", "", "checkpoint: the backup to restore; the newest if it is empty")
	s.StringVar(&o.As, "as", "", "name of the machine that is made; the one it had if it is empty")
	s.StringVar(&o.Class, "storage-class", "", "storage class of the disks; what the machine says if it is empty")
	s.BoolVar(&o.Addresses, "new-addresses", false, "give every network interface a new hardware address")
	s.BoolVar(&o.Start, "start", false, "start the machine")
	s.BoolVar(&o.Early, "early", false, "let it start while its disks are filled")
	s.BoolVar(&o.Trust, "trust", false, "also if the machine in the backup reaches for more than its own disks")
	s.BoolVar(&o.DryRun, "dry-run", false, "check everything and make nothing")
	s.StringVar(&o.Bucket, "bucket", "", "s3 or gcs: an http or https URL leads to a bucket of such a store, https://HOST/BUCKET/PATH")
	s.StringVar(&o.SecretRef, "secret", "", "Secret with accessKeyId and secretKey for a URL")
	s.StringVar(&o.CertConfigMap, "cert-configmap", "", "ConfigMap with authorities to trust for a URL")
	s.BoolVar(&o.Direct, "in-cluster", false, "reach the export of the claim by its Service, from a pod of the cluster")
	s.DurationVar(&o.Wait, "readiness-timeout", 2*time.Minute, "how long to wait until the claim can be read")
	s.DurationVar(&o.Keep, "serve-for", 24*time.Hour, "how long a claim of another namespace is served; its disks have to be full by then")
}

// stream writes documents one after another.
func (f *format) stream(w io.Writer, documents []any) error {
	for _, d := range documents {
		if *f != "yaml" {
			if err := f.write(w, d); err != nil {
				return err
			}
			continue
		}
		text, err := yaml.Marshal(d)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(w, "---\n%s", text); err != nil {
			return err
		}
	}
	return nil
}
