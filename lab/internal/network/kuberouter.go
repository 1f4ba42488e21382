package network

import (
	"fmt"

	"github.com/theseus-cni/theseus/lab/internal/phrase"
)

// KubeRouter is kube-router as the pods' network, with their policies. Firewall is it as the enforcer of policies and
// nothing else, next to another network.
const (
	KubeRouter = "kube-router"
	Firewall   = "kube-router-firewall"
)

// kubeRouter is upstream's manifest for clusters with kube-proxy, with the image of the release that the lab builds.
// Pods reach themselves through Services, as upstream's documentation has it.
func kubeRouter(params Params) ([]byte, error) {
	if !params.ServiceCIDR.IsValid() {
		return nil, errNoServices
	}
	const proxy, gateway = "        - --run-service-proxy=false\n", `             "isDefaultGateway":true,` + "\n"
	return upstream(params, "kube-router", "github.com/cloudnativelabs/kube-router",
		"daemonset/kubeadm-kuberouter.yaml",
		[]phrase.Edit{released("kube-router"), released("install-cni"),
			{From: gateway, To: gateway + `             "hairpinMode":true,` + "\n"},
			{From: proxy, To: proxy + "        - --service-cluster-ip-range=" + params.ServiceCIDR.String() + "\n"}})
}

var errNoServices = fmt.Errorf("kube-router needs the CIDR of Services")

// released gives a container the image of a release, which upstream's manifest leaves out.
func released(container string) phrase.Edit {
	image := "      - name: " + container + "\n        image: docker.io/cloudnativelabs/kube-router"
	return phrase.Edit{From: image + "\n        imagePullPolicy: Always",
		To: image + ":v1.5.1\n        imagePullPolicy: IfNotPresent"}
}

// firewall is after upstream's manifest.
func firewall(params Params) ([]byte, error) {
	if !params.ServiceCIDR.IsValid() {
		return nil, errNoServices
	}
	return own("kube-router.yaml", "SERVICE_CIDR", params.ServiceCIDR.String())
}
