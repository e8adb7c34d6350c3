package main

import "context"

// parts makes what main's comment says of them.
func (b *build) parts(ctx context.Context) error {
	steps := []func(context.Context) error{
		func(ctx context.Context) error { _, err := b.cloudGuest(ctx); return err },
		func(ctx context.Context) error { _, err := b.launcherBase(ctx); return err },
		func(ctx context.Context) error { _, err := b.authorities(ctx); return err },
		func(ctx context.Context) error { _, err := b.kernel(ctx); return err },
		func(ctx context.Context) error { _, err := b.packagesOf(ctx, "csi"); return err },
		func(ctx context.Context) error { _, err := b.packagesOf(ctx, "makers"); return err },
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}
