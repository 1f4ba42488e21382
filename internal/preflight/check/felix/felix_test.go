package felix

import (
	"testing"

	"github.com/theseus-cni/theseus/internal/preflight/check/checktest"
)

func TestInvalidValue(t *testing.T) { checktest.Run(t, InvalidValue()) }

func TestEnvOverrides(t *testing.T) { checktest.Run(t, EnvOverrides()) }

func TestKubeProxyMode(t *testing.T) { checktest.Run(t, KubeProxyMode()) }

func TestShadowedConfig(t *testing.T) { checktest.Run(t, ShadowedConfig()) }
