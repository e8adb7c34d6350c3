package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-vm/berth/internal/virtctl/forward"
	"github.com/berth-vm/berth/internal/virtctl/kube"
)

// Completions come from the cluster of the command line; if it cannot be read there are none.

const noFiles = cobra.ShellCompDirectiveNoFileComp

// names completes the first argument with names from the cluster.
func (a *app) names(list func(context.Context, *kube.Client) ([]string, error)) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, noFiles
		}
		return a.found(cmd.Context(), list), noFiles
	}
}

func (a *app) found(ctx context.Context, list func(context.Context, *kube.Client) ([]string, error)) []string {
	c, err := a.client()
	if err != nil {
		return nil
	}
	found, err := list(ctx, c)
	if err != nil {
		return nil
	}
	return found
}

// kinds completes vm or vmi, and then a name of that kind.
func (a *app) kinds() cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		switch {
		case len(args) == 0:
			return []string{"vm", "vmi"}, noFiles
		case len(args) == 1 && forward.Kind(args[0]) == "vm":
			return a.found(cmd.Context(), machines), noFiles
		case len(args) == 1 && forward.Kind(args[0]) == "vmi":
			return a.found(cmd.Context(), instances), noFiles
		}
		return nil, noFiles
	}
}

// targets completes [USER@]TYPE/NAME, with what comes after it; files are completed where one may stand.
func (a *app) targets(after string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if after == "" && len(args) > 0 {
			return nil, noFiles
		}
		user, rest, found := strings.Cut(typed, "@")
		prefix := user + "@"
		if !found {
			prefix, rest = "", typed
		}
		kind, _, chosen := strings.Cut(rest, "/")
		var names []string
		switch {
		case !chosen && after != "" && !found:
			return []string{"vm/", "vmi/"}, cobra.ShellCompDirectiveNoSpace // or a file
		case !chosen:
			return []string{prefix + "vm/", prefix + "vmi/"}, cobra.ShellCompDirectiveNoSpace | noFiles
		case forward.Kind(kind) == "vm":
			names = a.found(cmd.Context(), machines)
		case forward.Kind(kind) == "vmi":
			names = a.found(cmd.Context(), instances)
		}
		for i, n := range names {
			names[i] = prefix + kind + "/" + n + after
		}
		if after != "" {
			return names, cobra.ShellCompDirectiveNoSpace
		}
		return names, noFiles
	}
}

func machines(ctx context.Context, c *kube.Client) ([]string, error) {
	all, err := kube.Machines.List(ctx, c)
	names := make([]string, len(all))
	for i := range all {
		names[i] = all[i].Name
	}
	return names, err
}

func instances(ctx context.Context, c *kube.Client) ([]string, error) {
	all, err := kube.Instances.List(ctx, c)
	names := make([]string, len(all))
	for i := range all {
		names[i] = all[i].Name
	}
	return names, err
}

// volumeNames returns what addvolume takes: DataVolumes, and claims that are no DataVolume's.
func volumeNames(ctx context.Context, c *kube.Client) ([]string, error) {
	claims, err := kube.Claims(ctx, c)
	names := make([]string, len(claims))
	for i := range claims {
		names[i] = claims[i].Name
	}
	return names, err
}
