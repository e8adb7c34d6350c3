package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/berth-vm/berth/internal/virtctl/forward"
)

func (a *app) portForward() *cobra.Command {
	var stdio bool
	address := "127.0.0.1"
	cmd := &cobra.Command{
		Use:   "port-forward TYPE/NAME[/NAMESPACE] [PROTOCOL/]LOCAL[:REMOTE]...",
		Short: "Forward local ports to a virtual machine",
		Long: "Forward local ports to a virtual machine. TYPE is vm or vmi, PROTOCOL tcp or udp. Users who may get the subresource\n" +
			"portforward may use it; what is forwarded goes through the API server, and to the guest alone. A port need not be\n" +
			"listed in the machine. For much traffic, make a Service instead: virtctl expose.",
		Example: a.examples(`
  # Forward the local port 8080 to port 80 of machine web
  virtctl port-forward vm/web 8080:80

  # Forward the local UDP port 5353 to port 53 of machine dns in namespace net
  virtctl port-forward vm/dns/net udp/5353:53

  # Connect standard input and output with port 22, for programs that want that
  virtctl port-forward --stdio vm/web 22`),
		Args: cobra.MinimumNArgs(2), ValidArgsFunction: a.targets(""),
		RunE: func(cmd *cobra.Command, args []string) error {
			target, err := forward.ParseTarget(args[0])
			if err != nil {
				return misused(cmd, err)
			}
			var ports []forward.Port
			for _, text := range args[1:] {
				p, err := forward.ParsePort(text)
				if err != nil {
					return misused(cmd, err)
				}
				ports = append(ports, p)
			}
			if stdio && len(ports) != 1 {
				return errors.New("only one port supported when forwarding to stdout")
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			if stdio {
				return forward.Standard(cmd.Context(), c, target, ports[0], a.in, a.out)
			}
			f := &forward.Forwarder{Client: c, Target: target, Out: a.err}
			return f.Run(cmd.Context(), address, ports)
		},
	}
	cmd.Flags().BoolVar(&stdio, "stdio", false, "forward one port to standard input and output")
	cmd.Flags().StringVar(&address, "address", address, "address at which the local ports are opened")
	return cmd
}
