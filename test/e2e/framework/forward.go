// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
)

// Forward makes a port of the pod reachable at a local address until stop is called, as
// kubectl port-forward does.
func (c *Cluster) Forward(ctx context.Context, pod *corev1.Pod, port int) (address string, stop func(), err error) {
	transport, upgrader, err := spdy.RoundTripperFor(c.Config)
	if err != nil {
		return "", nil, fmt.Errorf("forward a port: %w", err)
	}
	url := c.CoreV1().RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("portforward").URL()
	dialer := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, url)
	ctx, cancel := context.WithCancel(ctx)
	ready, ended := make(chan struct{}), make(chan error, 1)
	// The local port 0 is any free port.
	forwarder, err := portforward.NewOnAddresses(dialer, []string{"127.0.0.1"}, []string{fmt.Sprintf("0:%d", port)}, ctx.Done(), ready, io.Discard, io.Discard)
	if err != nil {
		cancel()
		return "", nil, fmt.Errorf("forward a port: %w", err)
	}
	var running sync.WaitGroup
	running.Go(func() { ended <- forwarder.ForwardPorts() })
	select {
	case err := <-ended:
		cancel()
		return "", nil, fmt.Errorf("forward port %d of pod %s: %w", port, pod.Name, errors.Join(err, ctx.Err()))
	case <-ready:
	}
	stop = func() {
		cancel()
		running.Wait()
	}
	ports, err := forwarder.GetPorts()
	if err != nil {
		stop()
		return "", nil, fmt.Errorf("forward a port: %w", err)
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(int(ports[0].Local))), stop, nil
}
