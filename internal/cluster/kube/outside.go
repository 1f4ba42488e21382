package kube

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/proof/path"
)

// apiServerName is the default responder if the user names none.
const apiServerName = "api-server"

// responders returns the servers outside of the cluster with their addresses.
func (a *Actor) responders(ctx context.Context) ([]path.Responder, error) {
	if len(a.Measured.Outside) == 0 {
		return a.apiServerOutside(ctx)
	}
	known := slices.Clone(a.Measured.Outside)
	for i := range known {
		if known[i].Host == "" {
			continue
		}
		address, err := addressOf(ctx, known[i].Host)
		if err != nil {
			return nil, fmt.Errorf("--outside %s: %w", known[i].Name, err)
		}
		known[i].Address = net.JoinHostPort(address, known[i].Port)
	}
	return known, nil
}

// addressOf returns the lowest address of a host, IPv4 before IPv6. It is the same on every machine with the same DNS
// answer, so another machine can take over a run.
func addressOf(ctx context.Context, host string) (string, error) {
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return "", err
	}
	for i := range found {
		found[i] = found[i].Unmap()
	}
	return slices.MinFunc(found, netip.Addr.Compare).String(), nil
}

// apiServerOutside returns the API server at its own address, which is not a pod's. If this user may not read that
// address, or no EndpointSlice has it, there is no such path.
func (a *Actor) apiServerOutside(ctx context.Context) ([]path.Responder, error) {
	found, err := APIServers(ctx, a.Typed)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return nil, nil
	}
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return []path.Responder{kubernetesAPI(found[0])}, nil
}

func kubernetesAPI(address string) path.Responder {
	return path.Responder{Name: apiServerName, Protocol: v1alpha1.TCPReach, Host: apiServerName, Address: address}
}
