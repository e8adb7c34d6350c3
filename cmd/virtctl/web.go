package main

import (
	"github.com/spf13/cobra"

	"github.com/berth-vm/berth/internal/virtctl/web"
)

func (a *app) web() *cobra.Command {
	o := web.Options{Open: true}
	cmd := &cobra.Command{
		Use: "web", Short: "Show machines and disks in the browser",
		Long: "Serve a page on this machine that shows machines, their disks and nodes, and what each waits for, as it changes; with consoles,\n" +
			"screens, uploads and a form for new machines. Nothing is installed in the cluster: every request is made with the rights of\n" +
			"the kubeconfig, and only who has the printed address can open the page.",
		Example: a.examples(`
  # Look at the cluster
  virtctl web

  # ... from another machine, through ssh -L 8080:localhost:8080
  virtctl web --port 8080 --open=false`),
		Args: cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			return web.Run(cmd.Context(), c, o, a.out)
		},
	}
	s := cmd.Flags()
	s.IntVar(&o.Port, "port", 0, "local port at which the page is; one is chosen if it is 0")
	s.BoolVar(&o.Open, "open", true, "open the browser")
	s.StringVar(&o.UploadProxy, "uploadproxy-url", "", "address of the upload proxy")
	return cmd
}
