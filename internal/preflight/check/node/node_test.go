package node

import (
	"testing"

	"github.com/theseus-cni/theseus/internal/preflight/check/checktest"
)

func TestNotReady(t *testing.T) { checktest.Run(t, NotReady()) }
func TestVersions(t *testing.T) { checktest.Run(t, Versions()) }

func TestCapacity(t *testing.T) { checktest.Run(t, Capacity()) }

func TestImageAbsent(t *testing.T) { checktest.Run(t, ImageAbsent()) }

func TestForwarding(t *testing.T) { checktest.Run(t, Forwarding()) }

func TestClockSkew(t *testing.T) { checktest.Run(t, ClockSkew()) }

func TestKernel(t *testing.T) { checktest.Run(t, Kernel()) }

func TestLinkManagers(t *testing.T) { checktest.Run(t, LinkManagers()) }

func TestIPTablesMixed(t *testing.T) { checktest.Run(t, IPTablesMixed()) }

func TestPorts(t *testing.T) { checktest.Run(t, Ports()) }
