package main

import (
	"bufio"
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/render"
)

// look reads the scene again.
func (s *story) look(ctx context.Context) error {
	in := client.InNamespace(namespace)
	var volumes cdiv1.DataVolumeList
	var claims corev1.PersistentVolumeClaimList
	var pods corev1.PodList
	for _, list := range []client.ObjectList{&volumes, &claims, &pods} {
		if err := s.client.List(ctx, list, in); err != nil {
			return err
		}
	}
	if err := s.client.Get(ctx, client.ObjectKeyFromObject(s.vm), s.vm); err != nil {
		return err
	}
	s.now = scene{volumes: volumes.Items, claims: claims.Items, status: s.vm.Status}
	for i := range pods.Items {
		p := &pods.Items[i]
		if p.Labels[render.LabelMachine] != "virt-launcher" {
			continue
		}
		if _, consumer := p.Annotations[render.AnnConsumer]; consumer {
			s.now.consumer = p
		} else {
			s.now.launcher = p
		}
	}
	return nil
}

// listen prints what the guest says about its disks, from its serial console, which is the launcher's log.
func (s *story) listen(ctx context.Context) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	log, err := clients.CoreV1().Pods(namespace).GetLogs(s.now.launcher.Name, &corev1.PodLogOptions{Follow: true}).Stream(ctx)
	if err != nil {
		return fmt.Errorf("read the guest's console: %w", err)
	}
	defer func() { _ = log.Close() }()
	lines := bufio.NewScanner(log)
	for lines.Scan() {
		_, said, ok := strings.Cut(lines.Text(), "berth-guest: ")
		if !ok {
			continue
		}
		s.line("9", "guest: "+strings.TrimSpace(said))
		if strings.HasPrefix(said, "ready") {
			return nil
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read the guest's console: %w", err)
	}
	return fmt.Errorf("the guest ended before it said that it is ready")
}
