// gshm: the command line of gshmd. It uses only the public interface.
#include <cerrno>
#include <exception>
#include <signal.h>
#include <string_view>

#include "cli/completion/complete.h"
#include "cli/options.h"
#include "cli/support/context.h"
#include "cli/support/failure.h"
#include "cli/support/interrupt.h"
#include "cli/support/streams.h"

int main(int argc, char** argv) {
    using namespace gshm::cli;
    ensure_standard_descriptors();
    ::signal(SIGPIPE, SIG_IGN);  // write_stdout() sees the error
    ::signal(SIGXFSZ, SIG_IGN);  // so does write_all()

    if (argc > 1 && argv[1] == std::string_view("--complete")) return print_completion(argc - 2, argv + 2);

    const Context for_errors({}, wants_json(argc, argv));
    try {
        const auto line = parse_command_line(argc, argv);
        if (!line.command) {
            write_stdout(line.text);
            return 0;
        }
        Context context(line.dir, line.json);
        return line.command(context);
    } catch (const Failure& failure) {
        for_errors.report(failure);
        return static_cast<int>(failure.exit_code());
    } catch (const Interrupted& interrupted) {
        end_by(interrupted);
    } catch (const std::exception& error) {  // std::bad_alloc in most cases
        for_errors.report(Failure(ENOMEM, ExitCode::failed, error.what()));
        return static_cast<int>(ExitCode::failed);
    }
}
