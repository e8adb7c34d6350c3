package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-vm/berth/internal/virtctl/expose"
)

func (a *app) expose() *cobra.Command {
	var o expose.Options
	cmd := &cobra.Command{
		Use: "expose (vm|vmi) NAME --name SERVICE", Short: "Expose a virtual machine as a new service",
		Long: "Make a Service for ports of a virtual machine. Without --port it has every port that the machine lists. A machine's pod\n" +
			"listens at the ports that its interface lists, and at no others.",
		Example: a.examples(`
  # Expose SSH of machine web on each node
  virtctl expose vm web --port=22 --name=web-ssh --type=NodePort

  # Expose all ports that machine web lists
  virtctl expose vm web --name=web`),
		Args: cobra.ExactArgs(2), ValidArgsFunction: a.kinds(),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			kind, name := strings.ToLower(args[0]), args[1]
			s, unlisted, err := expose.Service(cmd.Context(), c, kind, name, o)
			if err != nil {
				return err
			}
			if _, err := c.Core.CoreV1().Services(c.Namespace).Create(cmd.Context(), s, metav1.CreateOptions{}); err != nil {
				return fmt.Errorf("service creation failed: %w", err)
			}
			if len(unlisted) > 0 {
				_, _ = fmt.Fprintf(a.err, "%s %s does not list port %s, so nothing answers there yet. Add it to the ports of its interface "+
					"(spec.template.spec.domain.devices.interfaces) and restart it.\n", kind, name, strings.Join(unlisted, ", "))
			}
			_, err = fmt.Fprintf(a.out, "Service %s successfully exposed for %s %s\n", o.Name, kind, name)
			return err
		},
	}
	s := cmd.Flags()
	s.StringVar(&o.Name, "name", "", "name of the service")
	s.StringVar(&o.ClusterIP, "cluster-ip", "", "address of the service in the cluster; empty has one chosen, None makes the service headless")
	s.StringVar(&o.ExternalIP, "external-ip", "", "another address at which nodes take connections for the service")
	s.StringVar(&o.LoadBalancerIP, "load-balancer-ip", "", "address to ask the load balancer for")
	s.Int32Var(&o.Port, "port", 0, "port of the service")
	s.Int32Var(&o.NodePort, "node-port", 0, "port of every node that leads to the service")
	s.StringVar(&o.Protocol, "protocol", "TCP", "TCP or UDP")
	s.StringVar(&o.TargetPort, "target-port", "", "port of the machine; that of the service if it is empty")
	s.StringVar(&o.Type, "type", "ClusterIP", "ClusterIP, NodePort or LoadBalancer")
	s.StringVar(&o.PortName, "port-name", "", "name of the port")
	s.StringVar(&o.IPFamily, "ip-family", "", "IPv4, IPv6, or both with a comma between")
	s.StringVar(&o.IPFamilyPolicy, "ip-family-policy", "", "SingleStack, PreferDualStack or RequireDualStack")
	_ = cmd.MarkFlagRequired("name")
	choices(cmd, "type", "ClusterIP", "NodePort", "LoadBalancer")
	choices(cmd, "protocol", "TCP", "UDP")
	return cmd
}
