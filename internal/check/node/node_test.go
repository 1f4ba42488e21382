package node

import (
	"testing"

	"github.com/theseus-cni/theseus/internal/check/checktest"
)

func TestNotReady(t *testing.T) { checktest.Run(t, NotReady()) }

func TestCapacity(t *testing.T) { checktest.Run(t, Capacity()) }

func TestImageAbsent(t *testing.T) { checktest.Run(t, ImageAbsent()) }

func TestForwarding(t *testing.T) { checktest.Run(t, Forwarding()) }
