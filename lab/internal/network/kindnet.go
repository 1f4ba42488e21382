package network

import "fmt"

// Kindnet is the network of kind's clusters: Debian's plugins ptp and host-local, and a stand-in for kindnetd.
const Kindnet = "kindnet"

// kindnet is kind's manifest.
func kindnet(params Params) ([]byte, error) {
	if !params.PodCIDR.IsValid() {
		return nil, fmt.Errorf("kindnet needs a pod CIDR")
	}
	return own("kindnet.yaml", "POD_CIDR", params.PodCIDR.String())
}
