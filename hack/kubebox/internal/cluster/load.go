package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/berth-vm/berth/hack/kubebox/internal/image"
	"github.com/berth-vm/berth/hack/kubebox/internal/plan"
	"github.com/berth-vm/berth/hack/kubebox/internal/state"
)

// Load puts the images of OCI archives into the cluster's registry, and makes every node that runs fetch them.
func (b *Box) Load(ctx context.Context, archives []string) error {
	if _, err := state.Load(b.Layout.Dir); err != nil {
		return err
	}
	ms, _, err := b.machines()
	if err != nil {
		return err
	}
	if _, up := running(ms, plan.ControlName); !up {
		return errors.New("the cluster does not run: run `kubebox up`")
	}
	store, err := image.Open(b.Layout.Images())
	if err != nil {
		return err
	}
	var names []string
	for _, archive := range archives {
		added, err := addArchive(store, archive)
		if err != nil {
			return err
		}
		names = append(names, added...)
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	work, ctx := errgroup.WithContext(ctx)
	nodes := 0
	for _, m := range ms {
		if m.Name == plan.ControlName {
			continue
		}
		nodes++
		work.Go(func() error {
			if err := image.Pull(ctx, m.Socket("/run/containerd/containerd.sock"), names); err != nil {
				return fmt.Errorf("node %s: %w", m.Name, err)
			}
			return nil
		})
	}
	if err := work.Wait(); err != nil {
		return err
	}
	b.say("loaded %s on %d nodes", strings.Join(names, ", "), nodes)
	return nil
}

// Trust has every node of the cluster pull what is in that registry from there, and not from the cluster's own.
func (b *Box) Trust(registry, authority string) error {
	c, err := state.Load(b.Layout.Dir)
	if err != nil {
		return err
	}
	certificates, err := os.ReadFile(authority)
	if err != nil {
		return fmt.Errorf("read the registry's authority: %w", err)
	}
	files, err := plan.TrustFiles(registry, string(certificates))
	if err != nil {
		return err
	}
	for _, n := range c.Nodes {
		if err := b.writeNodeFiles(n, files); err != nil {
			return err
		}
	}
	b.say("%d nodes pull from %s", len(c.Nodes), registry)
	return nil
}

func addArchive(store *image.Store, path string) ([]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open archive: %w", err)
	}
	defer f.Close()
	names, err := store.AddArchive(f)
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", path, err)
	}
	return names, nil
}
