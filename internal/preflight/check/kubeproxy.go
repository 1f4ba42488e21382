package check

import (
	"errors"
	"fmt"
	"strings"

	"github.com/theseus-cni/theseus/internal/safeio/bounded"
)

// KubeProxyConfig is the part of KubeProxyConfiguration that distinguishes pods from other clients.
type KubeProxyConfig struct {
	ClusterCIDR     string `json:"clusterCIDR"`
	DetectLocalMode string `json:"detectLocalMode"`
	Mode            string `json:"mode"`
	DetectLocal     struct {
		BridgeInterface     string `json:"bridgeInterface"`
		InterfaceNamePrefix string `json:"interfaceNamePrefix"`
	} `json:"detectLocal"`
}

// KubeProxy finds the configuration of kube-proxy in the ConfigMap of kubeadm, or in the flags of the DaemonSet.
func (p *Pass) KubeProxy() (KubeProxyConfig, error) {
	var c KubeProxyConfig
	if stored := p.Snapshot.ConfigMap("kube-system", "kube-proxy"); stored != nil {
		if err := bounded.Unmarshal([]byte(stored.Data["config.conf"]), &c); err != nil {
			return c, fmt.Errorf("config.conf in the ConfigMap kube-system/kube-proxy cannot be read: %w", err)
		}
		return c, nil
	}
	set := p.Snapshot.DaemonSet("kube-system", "kube-proxy")
	if set == nil {
		return c, errors.New("the configuration of kube-proxy is unknown: there is no ConfigMap or " +
			"DaemonSet kube-system/kube-proxy")
	}
	for _, container := range set.Spec.Template.Spec.Containers {
		for _, argument := range append(container.Command, container.Args...) {
			if strings.HasPrefix(argument, "--config") {
				return c, errors.New("the DaemonSet kube-system/kube-proxy reads its configuration from a " +
					"file that is not in the input")
			}
			if value, ok := strings.CutPrefix(argument, "--cluster-cidr="); ok {
				c.ClusterCIDR = value
			}
			if value, ok := strings.CutPrefix(argument, "--detect-local-mode="); ok {
				c.DetectLocalMode = value
			}
			if value, ok := strings.CutPrefix(argument, "--proxy-mode="); ok {
				c.Mode = value
			}
		}
	}
	return c, nil
}
