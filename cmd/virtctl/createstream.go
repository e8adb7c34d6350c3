package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-vm/berth/internal/version"
	"github.com/berth-vm/berth/internal/virtctl/createstream"
	"github.com/berth-vm/berth/internal/virtctl/createvm"
)

func (a *app) createStream() *cobra.Command {
	var o createstream.Options
	var usage string
	cmd := &cobra.Command{
		Use:   "stream [--name NAME] IMAGE...",
		Short: "Write the manifest of a stream: disks in container images as LUNs",
		Long: `Write the manifest of a stream, to be applied with kubectl: a Deployment that serves the disk in each container image as a LUN, which is
fetched from the registry as it is read, its Service, and the Secret that machines log in with, which has a new password each time.
The first image is LUN 0. Images are named by digest if a LUN is to be the same disk after a restart.

With --claims there is a claim for each LUN, called NAME-0 and so on, and the PersistentVolume behind it, which only an administrator may
create. Machines read a LUN with accessMode: read-shared, or have a copy of it.`,
		Example: a.examples(`
  # Two disks as LUN 0 and LUN 1 of target iqn.2026-01.dev.berth:golden; with --namespace=team it is iqn.2026-01.dev.berth:team.golden
  virtctl create stream --name=golden quay.io/containerdisks/fedora:latest quay.io/containerdisks/debian:latest | kubectl apply -f -

  # With claims golden-0 and golden-1 in namespace team
  virtctl create stream --name=golden -n team --claims=10Gi quay.io/containerdisks/fedora:latest quay.io/containerdisks/debian:latest | kubectl apply -f -`),
		RunE: func(cmd *cobra.Command, args []string) error {
			if flag := cmd.Flag("namespace"); flag != nil && flag.Changed {
				o.Namespace = flag.Value.String()
			}
			o.Images = args
			if usage != "" {
				class, err := a.classFor(cmd.Context(), usage)
				if err != nil {
					return err
				}
				o.CacheClass = class
			}
			if o.Credentials == "" { // which are for the registry that is named
				if c, err := a.client(); err == nil {
					o.Images = createstream.Mirrored(cmd.Context(), c, args)
				}
			}
			objects, err := createstream.Objects(o)
			if err != nil {
				return err
			}
			return createvm.Write(a.out, objects...)
		},
	}
	s := cmd.Flags()
	s.StringVar(&o.Name, "name", "stream", "name of everything that is made")
	s.StringVar(&o.Program, "image", "berth.dev/berth:"+version.Get().Version, "image of Berth's programs, as the cluster pulls it")
	s.StringVar(&o.CacheSize, "cache-size", "10Gi", "how much of what was fetched is kept")
	s.StringVar(&o.CacheClaim, "cache-claim", "", "claim to keep it in, so that it outlives the pod; default: a directory of the node")
	s.StringVar(&usage, "usage-type", "", "usage type of a new claim, NAME-cache, to keep what was fetched in; the cluster is asked which class offers it")
	s.StringVar(&o.Credentials, "credentials", "", "Secret for the registry: a .dockerconfigjson, or accessKeyId and secretKey")
	s.StringVar(&o.CA, "ca", "", "ConfigMap with certificate authorities that the registry's certificate may be of")
	s.StringVar(&o.Architecture, "arch", "", "architecture to choose from the images' platforms")
	s.BoolVar(&o.PlainHTTP, "plain-http", false, "talk to the registry without TLS")
	s.StringVar(&o.Claims, "claims", "", "size that claims of the LUNs say; default: there are no claims")
	return cmd
}

// classFor asks the cluster which class offers a usage type.
func (a *app) classFor(ctx context.Context, usage string) (*storagev1.StorageClass, error) {
	c, err := a.client()
	if err != nil {
		return nil, err
	}
	classes, err := c.Core.StorageV1().StorageClasses().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list the storage classes, to find usage type %s: %w", usage, err)
	}
	return createstream.ForUsage(classes.Items, usage)
}
