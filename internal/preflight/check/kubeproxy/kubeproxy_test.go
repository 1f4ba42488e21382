package kubeproxy

import (
	"testing"

	"github.com/theseus-cni/theseus/internal/preflight/check/checktest"
)

func TestClusterCIDR(t *testing.T) { checktest.Run(t, ClusterCIDR()) }
