package daemon

import (
	"log/slog"
	"slices"
	"testing"

	"github.com/sonde-probe/sonde/adapter/restart"
	"github.com/sonde-probe/sonde/config"
)

func TestSettingsThatRequireARestartAreNamed(t *testing.T) {
	was := config.Engine{Listen: "a", Settings: restart.Config{Budget: restart.Budget{Max: 3}}, LogLevel: slog.LevelInfo}
	same := config.Engine{Listen: "a", Settings: restart.Config{Budget: restart.Budget{Max: 3}}, LogLevel: slog.LevelDebug}
	if got := restartRequired(was, same); len(got) != 0 {
		t.Errorf("equal settings require a restart: %q", got)
	}
	other := config.Engine{Listen: "b", Settings: restart.Config{Budget: restart.Budget{Max: 4}}, TLS: &config.TLS{}}
	if got, want := restartRequired(was, other), []string{"listen", "restart_budget", "tls"}; !slices.Equal(got, want) {
		t.Errorf("settings that require a restart are %q, want %q", got, want)
	}
}
