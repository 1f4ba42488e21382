package network

import (
	"bytes"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/theseus-cni/theseus/lab/internal/build"
)

// Cilium is Cilium as its chart installs it.
const Cilium = "cilium"

// cilium is upstream's chart as `helm template` renders it, without Hubble, Envoy and health checks, whose programs the
// lab does not build. values come last, so that they win.
func cilium(params Params) ([]byte, error) {
	if !params.PodCIDR.IsValid() {
		return nil, fmt.Errorf("Cilium needs a pod CIDR")
	}
	if params.Modules == nil || params.Program == nil {
		return nil, fmt.Errorf("Cilium's chart comes with its source and is rendered by Helm, and neither was given")
	}
	source, err := params.Modules(build.CiliumComponent, build.CiliumModule)
	if err != nil {
		return nil, err
	}
	helm, err := params.Program("helm")
	if err != nil {
		return nil, err
	}
	args := []string{"template", "cilium", filepath.Join(source, "install", "kubernetes", "cilium"),
		"--namespace", "kube-system"}
	if params.Kubernetes != "" {
		args = append(args, "--kube-version", params.Kubernetes)
	}
	for _, value := range append(ciliumValues(params), params.Values...) {
		args = append(args, "--set", value)
	}
	cmd := exec.Command(helm, args...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("render Cilium's chart: %w: %s", err, strings.TrimSpace(errs.String()))
	}
	return out, nil
}

// ciliumValues are the lab's values of Cilium's chart. Its images have no digests here. Its containers get the
// capabilities of the chart but for SYS_RESOURCE, which a lab on a machine without it could not give them; kernels of
// this decade count the memory of BPF maps otherwise.
func ciliumValues(params Params) []string {
	capabilities := func(container string, names ...string) string {
		return "securityContext.capabilities." + container + "={" + strings.Join(names, ",") + "}"
	}
	values := []string{
		"hubble.enabled=false", "envoy.enabled=false", "l7Proxy=false",
		"healthChecking=false", "endpointHealthChecking.enabled=false",
		"image.useDigest=false", "operator.image.useDigest=false", "operator.replicas=1",
		capabilities("ciliumAgent", "CHOWN", "KILL", "NET_ADMIN", "NET_RAW", "IPC_LOCK", "SYS_MODULE", "SYS_ADMIN",
			"DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID", "SYSLOG"),
		capabilities("cleanCiliumState", "NET_ADMIN", "SYS_MODULE", "SYS_ADMIN"),
		"ipam.operator.clusterPoolIPv4PodCIDRList={" + params.PodCIDR.String() + "}",
	}
	if params.ConfDir != "" {
		values = append(values, "cni.confPath="+params.ConfDir)
	}
	if params.BinDir != "" {
		values = append(values, "cni.binPath="+params.BinDir)
	}
	if params.WithoutProxy { // nothing serves the API server's Service before Cilium does
		values = append(values, "kubeProxyReplacement=true", "k8sServiceHost="+params.APIServer.Addr().String(),
			fmt.Sprintf("k8sServicePort=%d", params.APIServer.Port()))
	}
	return values
}
