package daemon

import (
	"log/slog"
	"slices"
	"testing"

	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/restart"
)

func TestSettingsThatRequireARestartAreNamed(t *testing.T) {
	was := config.Engine{Listen: "a", Settings: restart.Config{Budget: restart.Budget{Max: 3}}, LogLevel: slog.LevelInfo}
	same := config.Engine{Listen: "a", Settings: restart.Config{Budget: restart.Budget{Max: 3}}, LogLevel: slog.LevelDebug, PluginMemory: 1 << 30}
	if got := restartRequired(was, same); len(got) != 0 {
		t.Errorf("equal settings require a restart: %q", got)
	}
	other := config.Engine{Listen: "b", Settings: restart.Config{Budget: restart.Budget{Max: 4}}, TLS: &config.TLS{}, Resume: config.Forget}
	if got, want := restartRequired(was, other), []string{"listen", "tls", "resume", "restart_budget"}; !slices.Equal(got, want) {
		t.Errorf("settings that require a restart are %q, want %q", got, want)
	}
}
