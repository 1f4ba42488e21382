package bgp

import (
	"testing"

	"github.com/theseus-cni/theseus/internal/check/checktest"
)

func TestPeerSelectorEmpty(t *testing.T) { checktest.Run(t, PeerSelectorEmpty()) }
func TestPartition(t *testing.T)         { checktest.Run(t, Partition()) }
func TestSingleReflector(t *testing.T)   { checktest.Run(t, SingleReflector()) }
func TestClusterID(t *testing.T)         { checktest.Run(t, ClusterID()) }
func TestNotStarted(t *testing.T)        { checktest.Run(t, NotStarted()) }
func TestSessionsDown(t *testing.T)      { checktest.Run(t, SessionsDown()) }
