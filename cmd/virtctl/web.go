package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/berth-vm/berth/internal/virtctl/web"
)

func (a *app) web() *cobra.Command {
	o := web.Options{Open: true}
	var many web.SignIn
	var signIn bool
	cmd := &cobra.Command{
		Use: "web", Short: "Show machines and disks in the browser",
		Long: "Serve a page on this machine that shows machines, their disks and nodes, and what each waits for, as it changes; with consoles,\n" +
			"screens, uploads and a form for new machines. Nothing is installed in the cluster: every request is made with the rights of\n" +
			"the kubeconfig, and only who has the printed address can open the page.",
		Example: a.examples(`
  # Look at the cluster
  virtctl web

  # ... from another machine, through ssh -L 8080:localhost:8080
  virtctl web --port 8080 --open=false

  # Serve it to others, who sign in with tokens of their own
  virtctl web --sign-in --listen :8443 --host berth.example.org --tls /etc/tls`),
		Args: cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if signIn {
				config, err := a.config.ClientConfig()
				if err != nil {
					return fmt.Errorf("find the cluster: %w", err)
				}
				many.UploadProxy = o.UploadProxy
				return web.RunSignIn(cmd.Context(), config, many, a.out)
			}
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
	s.BoolVar(&signIn, "sign-in", false, "serve it to others too: everybody signs in with a token and has its rights; of the kubeconfig only the cluster's address is used")
	s.StringVar(&many.Listen, "listen", "127.0.0.1:8443", "address to listen at, with --sign-in")
	s.StringSliceVar(&many.Hosts, "host", nil, "name under which the page is reached, with --sign-in; may be repeated")
	s.StringVar(&many.TLS, "tls", "", "directory with the page's tls.crt and tls.key, with --sign-in; a certificate is made if it is empty")
	s.StringVar(&o.UploadProxy, "uploadproxy-url", "", "address of the upload proxy")
	return cmd
}
