package private

import "testing"

func TestFilesOfTheSystemAreKnown(t *testing.T) {
	for path, want := range map[string]bool{
		"/etc/passwd": true, "/etc/../etc/shadow": true, "/usr/bin/env": true, "/dev/sda": true, "/proc/1/mem": true,
		"/etc/nginx/conf.d/upstream.conf": false, "/var/log/app.log": false, "/usr/local/app/app.log": false, "/binary": false, "x": false,
	} {
		if IsOfSystem(path) != want {
			t.Errorf("%s: got %v", path, !want)
		}
	}
}
