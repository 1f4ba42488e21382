package network

import "fmt"

// coreDNS is the cluster's DNS as kubeadm deploys it.
func coreDNS(params Params) ([]byte, error) {
	if !params.DNS.IsValid() {
		return nil, fmt.Errorf("CoreDNS needs the address of its Service")
	}
	return own("coredns.yaml", "DNS_ADDRESS", params.DNS.String())
}
