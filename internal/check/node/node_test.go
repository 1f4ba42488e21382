package node

import (
	"testing"

	"github.com/theseus-cni/theseus/internal/check/checktest"
)

func TestNotReady(t *testing.T) { checktest.Run(t, NotReady()) }
